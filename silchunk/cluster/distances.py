"""Distances of all points to the centres."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silchunk.cluster.points import Points
from silchunk.kernels.centroids import sums_to_clusters
from silchunk.plan import ranges
from silchunk.prepare import Job
from silchunk.rows import Block


@dataclass(frozen=True)
class _Distances:
    """Panel task: (r, K) distances of a row range."""

    points: Points
    centres: Block

    def __call__(self, start: int, stop: int) -> Block:
        n_clusters = len(self.centres)
        out = np.empty((stop - start, n_clusters))
        nothing, one = np.zeros(n_clusters), np.ones(n_clusters)
        sums_to_clusters(self.points.rows(start, stop), self.centres, nothing, one, out)
        return np.sqrt(out, out=out)


def distances_to(job: Job, points: Points, centres: Block) -> Block:
    """(n, K) Euclidean distances to ``centres`` (K, d), in the job's table."""
    job.map(
        _Distances(points, centres),
        lambda _, block: job.table.append(block),
        "distances to centres",
        ranges(job.n, job.plan.read_rows),  # results are as long as what is read
    )
    return job.table.whole()
