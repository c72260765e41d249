"""Many points: the bound from a sample, and a limit for clusterings of given sizes.

python examples/a_sample_of_many.py
"""

from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import silhouette_score

from silchunk import silhouette_bounds, silhouette_upper_bound

points, _ = make_blobs(20_000, n_features=8, centers=6, cluster_std=3.0, random_state=0)
points = points.astype("float32")
sampled = silhouette_upper_bound(points, min_cluster_size=100, sample_size=500, random_state=0)
print(sampled)

# A part of them that scikit-learn can score, and the sizes that k-means found.
few = points[:2000]
labels = KMeans(6, n_init=3, random_state=0).fit_predict(few)
score = silhouette_score(few, labels)
bounds = silhouette_bounds(few, labels=labels)
print(
    f"k-means scores {score:.3f}; no clustering with its sizes scores above {bounds.sized.asw:.3f}"
)
