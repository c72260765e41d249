"""Bringing a user's ``X``, whatever it is, into one checked form."""

from __future__ import annotations

import copy
import logging
import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from silchunk.errors import InputError, InputNotFoundError, InputTypeError
from silchunk.npy_files import map_npy
from silchunk.readers import ENDINGS, encodings, file_rows, file_vector, kind_of, split
from silchunk.readers.frames import library_of, unwrapped
from silchunk.rows import ArrayRows, DaskRows, NpyRows, RowSource, ZarrRows
from silchunk.sparse_rows import CsrRows, checked_csr

log = logging.getLogger("silchunk")

# What pathlib makes of an address: s3:/bucket/array.
ADDRESS = re.compile(r"\w{2,}:/[^/]")

OTHER_FILES = ", ".join(sorted(ENDINGS))


class OpenedPath(str):
    """A path, with the rows that were opened there: whoever wants its text has that, and whoever
    wants points has these; on the command line, by which options."""

    source: RowSource
    options: str = ""


def as_rows(X: Any, *, name: str = "X", sparse: bool = False) -> RowSource:
    """Bring ``X`` into the one checked form.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns), path, address, Zarr array or store, Dask array, or frame
        Numeric, dense and two-dimensional. An address, such as ``"s3://bucket/x.zarr"``, is that of
        a Zarr array; Zarr opens it through fsspec. Paths may be of tables (CSV, Parquet), whose
        columns of numbers are taken, and of HDF5 or ``.npz`` files, ``"cells.h5ad:obsm/X_pca"``.
        Frames are of pandas, polars, Arrow or xarray.
    name : str
        How messages call the argument.
    sparse : bool
        Whether a sparse matrix is taken: its rows are read as dense ones, a few at a time.

    Returns
    -------
    RowSource

    Raises
    ------
    InputError
        Not two-dimensional, empty, not numeric, or masked.
    InputTypeError
        Sparse, or of a kind that cannot be read.
    InputNotFoundError
        A path that does not exist.
    """
    X = unwrapped(X, name)
    source: RowSource
    if isinstance(X, RowSource):
        source = X
    elif isinstance(X, OpenedPath):
        source = _sparse_or_not(X.source, name, sparse)
    elif isinstance(X, (str, os.PathLike)):
        source = _sparse_or_not(_open_path(os.fspath(X), name), name, sparse)
    elif _is_sparse(X) and sparse:
        csr = X.tocsr()
        if not csr.has_canonical_format:
            csr = csr.copy()  # X is not ours to change
            csr.sum_duplicates()
        source = CsrRows(csr.data, csr.indices, csr.indptr, csr.shape)
    elif _is_sparse(X):
        raise InputTypeError(
            f"{name} is a sparse matrix ({type(X).__name__}): a missing entry is not a distance of "
            "zero, and points are read as dense rows. Pass a dense array, e.g. X.toarray() or a "
            "dimensionality-reduced version of it."
        )
    elif _is_dask(X):
        source = _lazy_dask(X, name)
    elif type(X).__module__.split(".")[0] == "zarr":
        source = _open_zarr(X, name)
    else:
        source = _from_array_like(X, name)
    return _checked(source, name)


def read_points(
    path: str | os.PathLike[str],
    *,
    array: str | None = None,
    columns: Sequence[str] | None = None,
    label_column: str | None = None,
    missing: bool = False,
    sparse: bool = False,
) -> RowSource:
    """Points in a file, for every function that takes points; with a choice of what in it they are.

    Without a choice, pass the path itself as ``X``.

    Parameters
    ----------
    path : str or path
        A table (.csv, .tsv, also .gz; .parquet), HDF5 (.h5, .hdf5, .h5ad), .npz, .npy or Zarr.
    array : str or None
        Which array of a file or folder that has several: ``"obsm/X_pca"``.
    columns : list of str or None
        Columns of a table, in this order. None: all that hold numbers but ``label_column``; the
        others are named in a warning.
    label_column : str or None
        The column of a table that has labels, and so is no feature. ``"FILE:NAME"`` reads them.
    missing : bool
        Whether empty cells of a table are let through, as NaN, which only the metric
        ``"nan_euclidean"`` takes.
    sparse : bool
        Whether a sparse matrix (CSR) is taken. Its rows are read as dense ones, a few at a time.

    Returns
    -------
    rows
        Any function of this package takes it as ``X``. A table is converted once, a few rows at a
        time, into a file below Dask's ``temporary-directory``: 8 bytes for each number, 4 where all
        columns are float32. It is deleted when the returned object is.

    Raises
    ------
    InputError
        The file is not what its name says, or has no such part; the message says where.
    InputTypeError
        Sparse, or of a kind that cannot be read.
    InputNotFoundError
        There is no such file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from silchunk import read_points, silhouette_score
    >>> file = pathlib.Path(tempfile.mkdtemp(), "t.csv")
    >>> _ = file.write_text("x,y,kind\\n0.2,1,a\\n0.1,1,a\\n1.3,2,b\\n1.2,2,b\\n")
    >>> X = read_points(file, columns=["x", "y"])
    >>> X.shape
    (4, 2)
    >>> round(silhouette_score(X, f"{file}:kind"), 3)
    0.933
    """
    text = os.fspath(path)
    if array is not None:
        text = f"{text}/{array}" if "://" in text else f"{text}:{array}"
    file, inside = split(text)
    kind = kind_of(file)
    choices = (columns, label_column) != (None, None)
    if kind is not None and os.path.isfile(file):
        source = file_rows(
            file, inside, columns=columns, label_column=label_column, missing=missing
        )
    elif choices and os.path.exists(file):
        raise InputError(f"columns are named in tables (CSV, TSV, Parquet); {file} is none.")
    else:
        source = _open_path(text, "X")
    return _checked(_sparse_or_not(source, "X", sparse), "X")


def _checked(source: RowSource, name: str) -> RowSource:
    _check_numeric(source.dtype, name)
    if 0 in source.shape:
        raise InputError(f"{name} is empty: its shape is {source.shape}.")
    return source


def _sparse_or_not(source: RowSource, name: str, sparse: bool) -> RowSource:
    if isinstance(source, CsrRows) and not sparse:
        n, width = source.shape
        raise InputTypeError(
            f"{name} is a sparse matrix ({n:,} by {width:,}): distances are computed from dense "
            "rows, which that many columns make slow. Reduce it first, as by PCA, or take "
            'read_points(path, sparse=True), whose rows are read as dense ones. "silchunk cluster" '
            "and the estimators take it as it is."
        )
    return source


def is_array_like(X: Any) -> bool:
    """Whether ``X`` lies in memory as a whole: an array, a frame, a sparse matrix or a sequence."""
    if library_of(X) == "xarray":
        X = getattr(X, "data", X)  # which may be Dask's
    if isinstance(X, (RowSource, str, os.PathLike)) or _is_dask(X):
        return False
    return type(X).__module__.split(".")[0] != "zarr"


def open_array(path: str, name: str = "X") -> Any:
    """The array at a path or address, of any shape: a ``.npy`` file, mapped, a Zarr array, or what
    `silchunk.readers` reads, in memory.

    Raises
    ------
    InputError
        It holds no array that can be read.
    InputTypeError
        It is of a kind that cannot be read.
    InputNotFoundError
        There is nothing.
    """
    path, inside = _there(path, name)
    kind = kind_of(path)
    if kind is not None and os.path.isfile(path):
        return file_vector(path, inside, name)
    if "://" in path or os.path.isdir(path):
        return _zarr_labels(path if inside is None else os.path.join(path, inside), name)
    return _npy_or_zarr(path, inside, name)


def _there(path: str, name: str) -> tuple[str, str | None]:
    """A path that exists, or an address, and what is named in it."""
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    path, inside = split(path)
    if "://" not in path and not os.path.exists(path):
        hint = " An address is given as text, not as a Path." if ADDRESS.match(path) else ""
        raise InputNotFoundError(f"{name}: there is no file or folder {path!r}.{hint}")
    return path, inside


def _npy_or_zarr(path: str, inside: str | None, name: str) -> Any:
    if "://" in path or os.path.isdir(path):
        path = path if inside is None else os.path.join(path, inside)
        return _zarr_array(path, name, path)
    if path.endswith(".zip"):
        from zarr.storage import StorePath, ZipStore

        store = ZipStore(path, mode="r")
        return _zarr_array(StorePath(store, inside) if inside else store, name, path)
    if not path.endswith(".npy"):
        raise InputTypeError(
            f"{name}: {path!r} is of a kind that silchunk does not read; it reads .npy files, Zarr "
            f"arrays (a folder, a path into a group, or a .zip) and {OTHER_FILES}."
        )
    if inside is not None:
        raise InputError(f"{name}: {path} is one array; there is no {inside!r} in it.")
    try:
        return map_npy(path)
    except (ValueError, EOFError) as error:
        reason = str(error)
        if "pickle" in reason or "Python objects" in reason:
            reason = "it holds Python objects; save labels as labels.astype(str), numbers as floats"
        raise InputError(f"{name}: {path!r} is not a readable .npy file: {reason}") from error


def _open_path(path: str, name: str) -> RowSource:
    path, inside = _there(path, name)
    if kind_of(path) is not None and os.path.isfile(path):
        return file_rows(path, inside, name=name)
    try:
        array = _npy_or_zarr(path, inside, name)
    except InputError:
        sparse = _zarr_sparse(path if inside is None else os.path.join(path, inside), name)
        if sparse is None:
            raise
        return sparse
    _check_two_dimensional(array.shape, name)
    if not isinstance(array, np.memmap):
        return ZarrRows(array)
    # The mapping knows its file, whatever the path was written as.
    return NpyRows(str(array.filename), (array.shape[0], array.shape[1]), array.dtype)


def _zarr_labels(path: str, name: str) -> Any:
    """A Zarr array, or what AnnData has encoded as a group of arrays."""
    try:
        return _zarr_array(path, name, path)
    except InputError:
        group = _encoded_group(path)
        if group is None:
            raise
        return encodings.labels_of(group, f"{name}: {path}")


def _zarr_sparse(path: str, name: str) -> CsrRows | None:
    group = _encoded_group(path)
    if group is None:
        return None
    *parts, shape = encodings.sparse_parts(group, f"{name}: {path}")
    # Each with a look for absent chunks.
    vectors = [_zarr_array(one, name, f"{path}/{one.basename}") for one in parts]
    return checked_csr(vectors, shape, f"{name}: {path}")


def _encoded_group(path: str) -> Any:
    """A Zarr group that stands for one array, as AnnData writes them; else None."""
    import zarr

    try:
        group = zarr.open_group(path, mode="r")
    except Exception:  # of whichever library opens such addresses; the caller has its own error
        return None
    return group if encodings.encoding(group) in encodings.OF_ARRAYS else None


def _open_zarr(X: Any, name: str) -> RowSource:
    array = open_zarr_array(X, name)
    _check_two_dimensional(array.shape, name)
    return ZarrRows(array)


def open_zarr_array(X: Any, name: str = "X") -> Any:
    """The array that a Zarr object is or holds, of any shape."""
    return _zarr_array(X, name, f"the given {type(X).__name__}")


def _zarr_array(target: Any, name: str, described: str) -> Any:
    # Zarr takes long to import: only where there is an array of its.
    from silchunk.zarr_arrays import checked, open_zarr

    return checked(open_zarr(target, name, described), name, described)


def _is_sparse(X: Any) -> bool:
    return type(X).__module__.split(".")[0] in {"scipy", "sparse"} and hasattr(X, "nnz")


def _is_dask(X: Any) -> bool:
    # By shape of the interface: only the engine imports Dask.
    return all(hasattr(X, part) for part in ("dask", "chunks", "blocks", "compute"))


def _lazy_dask(X: Any, name: str) -> DaskRows:
    if len(X.shape) == 2 and any(np.isnan(size) for size in X.shape):
        X = copy.copy(X).compute_chunk_sizes()  # a copy: it fills in the sizes in place
        log.info("%s: computed the unknown chunk lengths of the Dask array: %s", name, X.chunks[0])
    _check_two_dimensional(X.shape, name)
    return DaskRows(X)


def _from_array_like(X: Any, name: str) -> RowSource:
    if np.ma.isMaskedArray(X) and np.ma.is_masked(X):
        raise InputError(f"{name} is a masked array with masked entries; fill or drop them first.")
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InputError(f"{name} cannot be read as an array: {error}") from error
    _check_two_dimensional(array.shape, name)
    return ArrayRows(array)


def _check_two_dimensional(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2:
        hint = ""
        if len(shape) == 1:
            hint = (
                " Were labels passed in its place? A single feature needs X.reshape(-1, 1); "
                "a condensed distance matrix goes through import_distances first."
            )
        raise InputError(
            f"{name} must be 2-D, one row per point; it has shape {tuple(shape)}.{hint}"
        )


def _check_numeric(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind not in "fiub":
        raise InputError(f"{name} must be real numbers; its dtype is {dtype}.")
