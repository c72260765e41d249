"""Writes data/cells.h5ad and data/cells.zarr.zip by anndata 0.12.19, which the tests do not need.

python tests/readers/make_cells.py tests/readers/data
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse

N = 60
KIND = np.arange(N) % 3
NAMES = np.array(["T", "B", "NK"])[KIND]


def counts():
    """(60, 20) float32, mostly 0; each kind has a column of its own."""
    made = np.random.default_rng(7).poisson(0.3, (N, 20)).astype(np.float32)
    made[np.arange(N), KIND] += 9
    return made


def components():
    """(60, 4) float32, three clusters."""
    noise = np.random.default_rng(8).standard_normal((N, 4))
    return (np.c_[np.eye(3)[KIND] * 5, np.zeros(N)] + noise).astype(np.float32)


def cells():
    import anndata
    import pandas as pd

    obs = pd.DataFrame(
        {
            "louvain": pd.Categorical(NAMES),
            "batch": pd.Categorical(KIND + 1),
            "text": NAMES,
            "number": KIND,
            "nullable": pd.array(KIND, dtype="Int64"),
            "partly": pd.Categorical([None, *NAMES[1:]]),
        },
        index=[f"cell{i}" for i in range(N)],
    )
    made = anndata.AnnData(scipy.sparse.csr_matrix(counts()), obs=obs, obsm={"X_pca": components()})
    made.layers["by_columns"] = scipy.sparse.csc_matrix(counts())
    return made


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    cells().write_h5ad(folder / "cells.h5ad", compression="gzip")
    with tempfile.TemporaryDirectory() as temporary:
        cells().write_zarr(Path(temporary, "cells.zarr"))
        shutil.make_archive(str(folder / "cells.zarr"), "zip", Path(temporary, "cells.zarr"))
