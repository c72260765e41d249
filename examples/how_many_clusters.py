"""How many clusters? Each K beside what it could reach at most, and what each criterion prefers.

python examples/how_many_clusters.py
"""

from sklearn.datasets import load_wine

from silchunk import scaled, sweep

wine = scaled(load_wine().data)
found = sweep(wine, range(2, 8), estimator="ksil")
print(found)
for criterion, k in found.recommended.items():
    row = next(row for row in found.rows if row.n_clusters == k)
    print(f"{criterion:<18} prefers {k}, with a smallest cluster of {row.smallest} points")
