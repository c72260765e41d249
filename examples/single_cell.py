"""Clusters of single cells, read from an AnnData store on Zarr, and judged where they lie.

    python examples/single_cell.py

AnnData keeps principal components in obsm/X_pca and a clustering in obs/louvain, as codes and
categories. Both are plain Zarr arrays, so that neither anndata nor scanpy is needed here.
"""

import tempfile
from pathlib import Path

import numpy as np
import zarr
from sklearn.datasets import make_blobs

from silchunk import evaluate

CELL_TYPES = ["B cells", "CD4 T cells", "CD8 T cells", "Monocytes"]


def write_cells(path):
    """A small store in AnnData's layout, as ``adata.write_zarr(path)`` would make it."""
    components, types = make_blobs(
        [400, 700, 300, 600], n_features=20, cluster_std=4.0, random_state=0
    )
    root = zarr.open_group(path, mode="w", zarr_format=2)
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})

    def array(name, values, kind="array"):
        made = root.create_array(name, data=values)
        made.attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})

    def group(name, kind, version, **attributes):
        made = root.require_group(name)
        made.attrs.update({"encoding-type": kind, "encoding-version": version, **attributes})

    cells = np.array([f"cell-{i}" for i in range(len(types))], dtype="T")
    group("obsm", "dict", "0.1.0")
    array("obsm/X_pca", components.astype("float32"))
    group("obs", "dataframe", "0.2.0", _index="_index", **{"column-order": ["louvain"]})
    array("obs/_index", cells, "string-array")
    group("obs/louvain", "categorical", "0.2.0", ordered=False)
    array("obs/louvain/codes", types.astype("int8"))
    array("obs/louvain/categories", np.array(CELL_TYPES, dtype="T"), "string-array")


with tempfile.TemporaryDirectory() as folder:
    store = Path(folder) / "cells.zarr"
    write_cells(store)

    louvain = zarr.open_group(store, mode="r")["obs/louvain"]
    labels = louvain["categories"][:][louvain["codes"][:]]
    print(evaluate(store / "obsm" / "X_pca", labels, memory="1GiB"))
