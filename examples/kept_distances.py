"""Distances computed once, kept on disk, read for several bounds, damaged and mended.

python examples/kept_distances.py
"""

import tempfile
from pathlib import Path

import numpy as np

from silchunk import DamagedStoreError, build_distances, silhouette_bounds

points = np.random.default_rng(0).standard_normal((2000, 6))
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "d.zarr"
    D = build_distances(points, path, metric="manhattan")
    print(D)
    print(silhouette_bounds(path, min_cluster_size=[1, 100, 500]))

    shard = path / "c" / "3" / "0"
    shard.write_bytes(shard.read_bytes()[:-100])  # as a failing disk might
    try:
        silhouette_bounds(path)
    except DamagedStoreError as error:
        print("refused:", str(error).replace(folder, "..."))
    print(str(D.verify(repair=True)).replace(folder, "..."))
