"""Silhouettes of points as a Zarr group."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from silchunk import storage
from silchunk.disk import room_for
from silchunk.errors import OutputExistsError

Vector = np.ndarray[Any, np.dtype[Any]]

CHUNK_ROWS = 1 << 16


def write_table(
    path: str | os.PathLike[str],
    blocks: Iterable[tuple[int, Mapping[str, Vector]]],
    n_rows: int,
    attributes: Mapping[str, Any],
) -> None:
    """Write columns that come in blocks of rows, each with its first row's index.

    Raises
    ------
    OutputExistsError
        ``path`` exists; it is left as it is.
    """
    target = storage.local_path(path)
    if os.path.lexists(target):
        raise OutputExistsError(f"{target} exists already and is left as it is; name another path.")
    with storage.appearing_whole(target) as temporary, room_for(target, 0):
        group = zarr.create_group(LocalStore(temporary), attributes=dict(attributes))
        for start, columns in blocks:
            for name, values in columns.items():
                if name not in group:
                    group.create_array(
                        name, shape=(n_rows,), chunks=(min(CHUNK_ROWS, n_rows),), dtype=values.dtype
                    )
                array = group[name]
                assert isinstance(array, zarr.Array)
                array[start : start + len(values)] = values
