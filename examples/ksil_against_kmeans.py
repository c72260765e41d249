"""K-Sil against k-means on real data, each the best of ten runs from the same first centres.

python examples/ksil_against_kmeans.py
"""

from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from silchunk import KMeans, KSil, compare_labels, silhouette_score

print("data           clusters  algorithm   macro   micro   agreement with the classes (ARI)")
for load, k in ((load_iris, 3), (load_wine, 3), (load_breast_cancer, 2), (load_digits, 10)):
    data = load()
    spread = data.data.std(axis=0)
    points = data.data[:, spread > 0] / spread[spread > 0]
    for kind in (KMeans, KSil):
        labels = kind(k, n_init=10, random_state=0).fit_predict(points)
        macro = silhouette_score(points, labels, average="macro")
        micro = silhouette_score(points, labels)
        ari = compare_labels(data.target, labels).ari
        name = load.__name__.removeprefix("load_")
        print(f"{name:<14}  {k:7d}  {kind.__name__:<9}  {macro:6.3f}  {micro:6.3f}  {ari:6.3f}")
print("K-Sil makes a silhouette of centres large; fit both, and let the scores of points decide.")
