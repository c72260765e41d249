"""Points in a Zarr store, bounded within a memory budget that their distances would not fit.

    python examples/larger_than_memory.py

The 12,000 x 12,000 distances would take 549 MiB; the whole process keeps to 300 MiB.
"""

import tempfile
from pathlib import Path

import numpy as np
import zarr

from silchunk import estimate_bounds, silhouette_upper_bound

with tempfile.TemporaryDirectory() as folder:
    store = Path(folder) / "cells.zarr"
    points = zarr.create_array(
        store, name="obsm/X_pca", shape=(12_000, 10), chunks=(2_000, 10), dtype="float32"
    )
    rng = np.random.default_rng(0)
    for start in range(0, 12_000, 2_000):  # written as it would be for data of any size
        centre = rng.normal(0, 6, 10)
        points[start : start + 2_000] = centre + rng.standard_normal((2_000, 10))

    path = store / "obsm" / "X_pca"
    print(estimate_bounds(path, memory="300MiB").plan)
    bound = silhouette_upper_bound(path, memory="300MiB", min_cluster_size=[1, 500, 2_000])
    print("no clustering scores above          ", round(bound[0], 4))
    print("none of clusters of 500 or more     ", round(bound[1], 4))
    print("none of clusters of 2,000 or more   ", round(bound[2], 4))
