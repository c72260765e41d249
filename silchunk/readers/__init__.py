"""Files of other formats than ``.npy`` and Zarr, one module for each.

``FILE:INSIDE`` names what lies in a file: an array, or a column.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from silchunk.errors import InputError
from silchunk.rows import Block, RowSource

if TYPE_CHECKING:
    from silchunk.readers.tables import Table

# The kind of a file by how its name ends.
ENDINGS = {
    ".csv": "delimited",
    ".tsv": "delimited",
    ".csv.gz": "delimited",
    ".tsv.gz": "delimited",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".h5ad": "hdf5",
}
TABLES = ("delimited", "parquet")
# The library that reads a kind of file.
LIBRARIES = {"delimited": "pyarrow", "parquet": "pyarrow", "hdf5": "h5py"}


def kind_of(path: str) -> str | None:
    """The kind of file that a path names; None for what is not read here."""
    lower = path.lower()
    return next((kind for ending, kind in ENDINGS.items() if lower.endswith(ending)), None)


def split(path: str) -> tuple[str, str | None]:
    """``FILE:INSIDE`` as its two parts; a path of something that is there is all FILE."""
    if os.path.exists(path) or "://" in path:
        return path, None
    for place in (i for i, letter in enumerate(path) if letter == ":"):
        if os.path.exists(path[:place]):
            return path[:place], path[place + 1 :]
    return path, None


def libraries_of(X: Any) -> set[str]:
    """Names of the libraries that reading ``X``, points or labels, has loaded or will load."""
    while isinstance(X, (str, RowSource)) and hasattr(X, "source"):
        X = X.source  # rows of other rows; or a path that was opened
    name: str | None = None
    if isinstance(X, (str, os.PathLike)):
        name = LIBRARIES.get(kind_of(split(os.fspath(X))[0]) or "")
    elif isinstance(X, RowSource):
        name = getattr(X, "read_with", None)
    return {name} if name else set()


def file_rows(
    path: str,
    inside: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    label_column: str | None = None,
    missing: bool = False,
    name: str = "X",
) -> RowSource:
    """The points in a file of a `kind_of` its own.

    Parameters
    ----------
    inside : str or None
        Which array; None: the only one.
    columns : list of str or None
        Of a table; None: all that hold numbers.
    label_column : str or None
        Of a table, the column that is not to be among these.
    missing : bool
        Whether NaN is let through from a table.

    Raises
    ------
    InputError
        There is nothing of that kind, or no such part of it.
    """
    kind = kind_of(path)
    if kind in TABLES:
        if inside is not None:
            raise InputError(
                f"{name}: {path}:{inside} is one column; points are read from {path}, and columns= "
                "names those to read."
            )
        from silchunk.readers import tables

        return tables.feature_rows(
            _table(path, name),
            columns=columns,
            label_column=label_column,
            missing=missing,
            name=name,
        )
    if columns is not None:
        raise InputError(
            f"{name}: columns are named in tables (CSV, TSV, Parquet); {path} has arrays."
        )
    if kind == "npz":
        from silchunk.readers.npz import npz_rows

        return npz_rows(path, inside, name)
    from silchunk.readers.hdf5 import hdf5_rows

    return hdf5_rows(path, inside, name)


def file_vector(path: str, inside: str | None, name: str) -> Block:
    """Labels, or an array of any shape, in a file of a `kind_of` its own.

    Raises
    ------
    InputError
    """
    kind = kind_of(path)
    if kind in TABLES:
        from silchunk.readers import tables

        return tables.label_vector(_table(path, name), inside, name)
    if kind == "npz":
        from silchunk.readers.npz import npz_vector

        return npz_vector(path, inside, name)
    from silchunk.readers.hdf5 import hdf5_vector

    return hdf5_vector(path, inside, name)


def _table(path: str, name: str) -> Table:
    if kind_of(path) == "parquet":
        from silchunk.readers.parquet import ParquetTable

        return ParquetTable.opened(path, name)
    from silchunk.readers.delimited import DelimitedTable

    return DelimitedTable.opened(path, name)
