"""What travels to workers: paths and row ranges, however much is known of the input."""

from __future__ import annotations

import cloudpickle
import numpy as np
import pytest
from scipy import sparse

import silchunk
from silchunk.engine import flight

# Names, numbers and paths; a thousand float64 would not fit.
TASK_BYTES = 6000
N_CLUSTERS = 40

rng = np.random.default_rng(3)
X = rng.standard_normal((3000, 64)).astype(np.float32)
LABELS = rng.integers(0, N_CLUSTERS, len(X))
WEIGHTS = rng.random(len(X))
KINDS = (silchunk.KMeans, silchunk.KSil, silchunk.SphericalKSil, silchunk.OWKMeans)

JOBS = {
    "bounds": lambda client, folder: silchunk.silhouette_bounds(
        X, min_cluster_size=range(1, 500, 3), labels=LABELS, scheduler=client
    ),
    "sampled bound": lambda client, folder: silchunk.silhouette_upper_bound(
        X, sample_size=900, scheduler=client
    ),
    "stored distances": lambda client, folder: silchunk.build_distances(
        X, folder / "d.zarr", scheduler=client
    ),
    "slow distances": lambda client, folder: silchunk.build_distances(
        X[:400], folder / "d.zarr", metric="braycurtis", scheduler=client
    ),
    "distances with parameters": lambda client, folder: silchunk.silhouette_bounds(
        X, metric="mahalanobis", scheduler=client
    ),
    "euclidean silhouettes": lambda client, folder: silchunk.silhouette_samples(
        X, LABELS, scheduler=client
    ),
    "squared silhouettes": lambda client, folder: silchunk.silhouette_samples(
        X, LABELS, metric="sqeuclidean", scheduler=client
    ),
    "manhattan silhouettes": lambda client, folder: silchunk.silhouette_samples(
        X, LABELS, metric="manhattan", scheduler=client
    ),
    "weighted silhouettes": lambda client, folder: silchunk.silhouette_samples(
        X, LABELS, sample_weight=WEIGHTS, scheduler=client
    ),
    "sampled silhouettes": lambda client, folder: silchunk.silhouette_score(
        X, LABELS, sample_size=900, scheduler=client
    ),
    "indices": lambda client, folder: silchunk.davies_bouldin_score(X, LABELS, scheduler=client),
    "dunn": lambda client, folder: silchunk.dunn_score(X, LABELS, scheduler=client),
    "evaluation": lambda client, folder: silchunk.evaluate(X, LABELS, scheduler=client),
    **{
        kind.__name__: lambda client, folder, kind=kind: kind(
            N_CLUSTERS, max_iter=3, random_state=0, scheduler=client
        ).fit(X, sample_weight=WEIGHTS)
        for kind in KINDS
    },
    "k-means||": lambda client, folder: silchunk.KMeans(
        N_CLUSTERS, init="k-means||", max_iter=2, random_state=0, scheduler=client
    ).fit(X),
    "sparse points": lambda client, folder: silchunk.KMeans(
        N_CLUSTERS, max_iter=2, random_state=0, scheduler=client
    ).fit(sparse.csr_matrix(np.where(X > 1, X, 0))),
    "predictions": lambda client, folder: (
        silchunk.KMeans(N_CLUSTERS, max_iter=1, random_state=0, scheduler=client)
        .fit(X)
        .transform(X)
    ),
}


@pytest.mark.cluster
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tasks_carry_no_arrays(name, client, tmp_path, monkeypatch):
    sizes = []
    run_panels = flight.run_panels

    def watched(message, panels, *rest):
        sizes.append(len(cloudpickle.dumps((message, panels[:1]))))
        run_panels(message, panels, *rest)

    monkeypatch.setattr(flight, "run_panels", watched)
    JOBS[name](client, tmp_path)
    assert sizes
    assert max(sizes) < TASK_BYTES
