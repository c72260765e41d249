"""A distance of one's own: time series compared by dynamic time warping.

    python examples/own_metric.py

Any symmetric function of two points will do; the triangle inequality is not needed. It runs in
Python, once for each pair, so distances are kept and serve the clustering, its score and its bound.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import zarr
from sklearn.cluster import AgglomerativeClustering

from silchunk import SlowMetricWarning, build_distances, silhouette_bounds, silhouette_score


def warped(first, second, window=4):
    """Dynamic time warping: least sum of differences where either series may wait for the other."""
    cost = [0.0] + [np.inf] * len(second)
    for i, value in enumerate(first.tolist(), start=1):
        row = [np.inf] * (len(second) + 1)
        for j in range(max(1, i - window), min(len(second), i + window) + 1):
            step = min(cost[j], cost[j - 1], row[j - 1])
            row[j] = step + abs(value - float(second[j - 1]))
        cost = row
    return cost[-1]


rng = np.random.default_rng(0)
time = np.linspace(0, 4 * np.pi, 30)
waves = [np.sin, np.cos, lambda t: np.sign(np.sin(t))]
kinds = rng.integers(3, size=90)
series = np.array([waves[kind](time + rng.uniform(-0.4, 0.4)) for kind in kinds])
series += rng.normal(0, 0.15, series.shape)

with tempfile.TemporaryDirectory() as folder:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowMetricWarning)  # known, and few points
        D = build_distances(series, Path(folder) / "d.zarr", metric=warped)
    model = AgglomerativeClustering(3, metric="precomputed", linkage="average")
    labels = model.fit_predict(zarr.open_array(D.path, mode="r")[:])
    score = silhouette_score(D, labels)
    bounds = silhouette_bounds(D, labels=labels)

print(f"three clusters of {np.bincount(labels)} series score {score:.3f}")
print(f"no clustering scores above {bounds.asw:.3f}, none of these sizes above", end=" ")
print(f"{bounds.sized.asw:.3f}: at worst {bounds.sized.wcre(score):.0%} are left to gain")
