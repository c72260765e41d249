"""A first bound: how much silhouette do these points allow, and how close did k-means come?

python examples/first_bound.py
"""

from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import silhouette_score

from silchunk import silhouette_bounds

points, _ = make_blobs(1000, n_features=8, centers=4, cluster_std=2.0, random_state=0)
labels = KMeans(4, n_init=10, random_state=0).fit_predict(points)
score = silhouette_score(points, labels)

bounds = silhouette_bounds(points)
print(bounds)
print(f"k-means scores {score:.3f}, so at worst {bounds.wcre(score):.0%} are left to gain")
print(f"with 200 or more points in each cluster, at most {bounds.at(200):.3f} is possible")
