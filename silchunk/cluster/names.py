"""How people call the estimators."""

from __future__ import annotations

# The name, and the class of `silchunk` that it stands for.
ALGORITHMS = {
    "ksil": "KSil",
    "spherical-ksil": "SphericalKSil",
    "kmeans": "KMeans",
    "lof-kmeans": "LOFKMeans",
    "ilof-kmeans": "ILOFKMeans",
    "ow-kmeans": "OWKMeans",
}
