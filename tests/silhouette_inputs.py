"""Silhouettes as one would write them on a blackboard, and points to compute them of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import oracles
from sklearn import datasets

from silchunk import silhouette_jobs

D6 = np.abs(oracles.X6 - oracles.X6.T)
L6 = [0, 0, 0, 1, 1, 1]
S6 = [0.92173913, 0.952, 0.95934959, 0.79583333, 0.62886598, 0.74315068]


class Rows(NamedTuple):
    """What a silhouette table has of each point, in float64."""

    a: np.ndarray
    b: np.ndarray
    s: np.ndarray
    nearest: list


def definition(D, labels) -> Rows:
    """A loop over points, and for each of them a loop over all others."""
    labels = list(labels)
    classes = sorted(set(labels))
    a, b, s, nearest = [], [], [], []
    for i, own in enumerate(labels):
        sums, counts = dict.fromkeys(classes, 0.0), dict.fromkeys(classes, 0)
        for j, label in enumerate(labels):
            if i != j:
                sums[label] += float(D[i][j])
                counts[label] += 1
        means = {label: sums[label] / counts[label] for label in classes if counts[label]}
        others = {label: mean for label, mean in means.items() if label != own}
        least = min(others, key=others.__getitem__)
        within, beyond = means.get(own, np.nan), others[least]
        larger = max(within, beyond)
        a.append(within)
        b.append(beyond)
        s.append((beyond - within) / larger if counts[own] and larger > 0 else 0.0)
        nearest.append(least)
    return Rows(np.array(a), np.array(b), np.array(s), nearest)


def blobs(n, d, n_clusters, *, alone=0, seed=0, dtype=np.float64):
    """Overlapping groups of points and their labels, the last ``alone`` of them of one point."""
    X, labels = datasets.make_blobs(
        n, d, centers=n_clusters - alone, cluster_std=3.0, random_state=seed
    )
    labels[:alone] = n_clusters - alone + np.arange(alone)
    return X.astype(dtype), labels


def run_only(monkeypatch, *ways) -> None:
    """Let silhouettes be computed in these ways and no other."""
    monkeypatch.setattr(silhouette_jobs, "_ways", lambda *_: list(ways))


def ways_taken(monkeypatch) -> list[str]:
    """A list that the name of each way is added to when it runs."""
    taken: list[str] = []
    for way in (
        silhouette_jobs.ByRows,
        silhouette_jobs.ByPairs,
        silhouette_jobs.ByCoordinates,
        silhouette_jobs.ByCentroids,
    ):

        def noted(self, job, clusters, run=way.run, name=way.__name__):
            taken.append(name)
            run(self, job, clusters)

        monkeypatch.setattr(way, "run", noted)
    return taken
