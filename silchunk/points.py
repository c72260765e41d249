"""Bringing a user's ``X``, whatever it is, into one checked form."""

from __future__ import annotations

import copy
import logging
import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from silchunk.errors import InputError, InputNotFoundError, InputTypeError
from silchunk.rows import ArrayRows, CsrRows, DaskRows, NpyRows, RowSource, ZarrRows, map_npy

log = logging.getLogger("silchunk")

# What pathlib makes of an address: s3:/bucket/array.
ADDRESS = re.compile(r"\w{2,}:/[^/]")


def as_rows(X: Any, *, name: str = "X", sparse: bool = False) -> RowSource:
    """Bring ``X`` into the one checked form.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns), path, address, Zarr array or store, or Dask array
        Numeric, dense and two-dimensional. An address, such as ``"s3://bucket/x.zarr"``, is that of
        a Zarr array; Zarr opens it through fsspec.
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
    source: RowSource
    if isinstance(X, RowSource):
        source = X
    elif isinstance(X, (str, os.PathLike)):
        source = _open_path(os.fspath(X), name)
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
    _check_numeric(source.dtype, name)
    if 0 in source.shape:
        raise InputError(f"{name} is empty: its shape is {source.shape}.")
    return source


def is_array_like(X: Any) -> bool:
    """Whether ``X`` lies in memory as a whole: an array, a frame, a sparse matrix or a sequence."""
    if isinstance(X, (RowSource, str, os.PathLike)) or _is_dask(X):
        return False
    return type(X).__module__.split(".")[0] != "zarr"


def open_array(path: str, name: str = "X") -> Any:
    """The array at a path or address, of any shape: a ``.npy`` file, mapped, or a Zarr array.

    Raises
    ------
    InputError
        It holds no array that can be read.
    InputTypeError
        It is of a kind that cannot be read.
    InputNotFoundError
        There is nothing.
    """
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    if "://" in path:
        return _zarr_array(path, name, path)
    if not os.path.exists(path):
        hint = " An address is given as text, not as a Path." if ADDRESS.match(path) else ""
        raise InputNotFoundError(f"{name}: there is no file or folder {path!r}.{hint}")
    if os.path.isdir(path):
        return _zarr_array(path, name, path)
    if path.endswith(".zip"):
        from zarr.storage import ZipStore

        return _zarr_array(ZipStore(path, mode="r"), name, path)
    if not path.endswith(".npy"):
        raise InputTypeError(
            f"{name}: {path!r} is of a kind that silchunk does not read; it reads .npy files and "
            "Zarr arrays (a folder, a path into a group, or a .zip). To convert a CSV file: "
            'numpy.save("x.npy", numpy.loadtxt("x.csv", delimiter=",", skiprows=1)).'
        )
    try:
        return map_npy(path)
    except (ValueError, EOFError) as error:
        reason = str(error)
        if "pickle" in reason or "Python objects" in reason:
            reason = "it holds Python objects; save labels as labels.astype(str), numbers as floats"
        raise InputError(f"{name}: {path!r} is not a readable .npy file: {reason}") from error


def _open_path(path: str, name: str) -> RowSource:
    array = open_array(path, name)
    _check_two_dimensional(array.shape, name)
    if not isinstance(array, np.memmap):
        return ZarrRows(array)
    # The mapping knows its file, whatever the path was written as.
    return NpyRows(str(array.filename), (array.shape[0], array.shape[1]), array.dtype)


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
