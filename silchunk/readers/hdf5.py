"""HDF5 files, AnnData's ``.h5ad`` among them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk.errors import InputError
from silchunk.readers import encodings
from silchunk.readers.libraries import needed
from silchunk.readers.tables import must_be_file
from silchunk.rows import ALL, Block, float_dtype
from silchunk.sparse_rows import CsrRows, checked_csr


@dataclass(frozen=True)
class Hdf5Rows:
    """Rows of a dataset; the file is opened anew for every read, so that workers can do so too."""

    path: str
    inside: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int
    read_with: str = "h5py"

    @property
    def resident_bytes(self) -> int:
        return 0

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        with opened(self.path, self.path) as file:
            block = _read(file[self.inside], (slice(start, stop), columns), self.path)
        return np.ascontiguousarray(block, dtype=float_dtype(self.dtype))


@dataclass(frozen=True)
class Hdf5Vector:
    """A one-dimensional dataset."""

    path: str
    inside: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None

    def __getitem__(self, entries: slice, /) -> Block:
        with opened(self.path, self.path) as file:
            return _read(file[self.inside], entries, self.path)


def hdf5_rows(path: str, inside: str | None, name: str) -> Hdf5Rows | CsrRows:
    """Points in a file; they stay there.

    Raises
    ------
    InputError
        There is no such array, or it cannot be read.
    InputTypeError
        A sparse matrix by columns.
    """
    described = f"{name}: {path}"
    with opened(path, described) as file:
        if inside is None:
            found = encodings.arrays(file)
            if len(found) != 1:
                raise InputError(
                    f"{described} holds {len(found)} two-dimensional arrays; say which: "
                    + (", ".join(f"{path}:{one}" for one in found[:20]) or "there is none")
                )
            inside = found[0]
        node = _node(file, inside, described)
        described = f"{described}:{inside}"
        if encodings.is_group(node):
            *parts, shape = encodings.sparse_parts(node, described)
            vectors = [
                Hdf5Vector(path, one.name, one.shape, one.dtype, one.chunks) for one in parts
            ]
            return checked_csr(vectors, shape, described)
        if len(node.shape) != 2:
            raise InputError(
                f"{described}: points are 2-D, one row each; it has shape {node.shape}."
            )
        chunk_rows = 1 if node.chunks is None else int(node.chunks[0])
        return Hdf5Rows(path, inside, node.shape, np.dtype(node.dtype), chunk_rows)


def hdf5_vector(path: str, inside: str | None, name: str) -> Block:
    """Labels, or any other array, in memory.

    Raises
    ------
    InputError
    """
    described = f"{name}: {path}"
    with opened(path, described) as file:
        if inside is None:
            raise InputError(
                f"{described}: say where in it they are, such as {path}:obs/louvain. "
                f"{encodings.no_array(file, path)}"
            )
        node = _node(file, inside, described)
        described = f"{described}:{inside}"
        if encodings.is_group(node):
            return encodings.labels_of(node, described)
        categories = node.attrs.get("categories")  # how anndata encoded them before 0.7
        if categories is not None:
            classes = encodings.plain(file[categories])
            return encodings.from_codes(node[:], classes, described)
        return encodings.plain(node)


@contextmanager
def opened(path: str, described: str) -> Iterator[Any]:
    """The file, to be read.

    Raises
    ------
    InputError
    """
    h5py = needed("h5py", described)
    must_be_file(path, described)
    try:
        file = h5py.File(path, "r", locking=False)  # shared file systems may have no locks
    except OSError as error:
        raise InputError(f"{described} is not a readable HDF5 file: {error}") from error
    with file:
        yield file


def _node(file: Any, inside: str, described: str) -> Any:
    try:
        return file[inside]
    except (KeyError, ValueError) as error:
        raise encodings.no_such(file, inside, described) from error


def _read(dataset: Any, place: Any, described: str) -> Block:
    try:
        block: Block = dataset[place]
    except OSError as error:
        if "filter" in str(error):
            raise OSError(
                f"{described}: {error}. Such compression needs the package hdf5plugin, imported "
                "here and on every worker."
            ) from error
        raise
    return block
