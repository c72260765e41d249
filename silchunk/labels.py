"""Labels of any kind, in memory or not, as small integers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk.errors import InputError, InputTypeError, warn
from silchunk.npy_files import map_npy
from silchunk.points import open_array, open_zarr_array

Codes = np.ndarray[Any, np.dtype[Any]]

NOISE = -1  # what density-based algorithms call points of no cluster
NOISE_KINDS = ("cluster", "drop", "singleton")
LEFT_OUT = -1

# Labels out of core are read this many at a time.
BLOCK_LABELS = 1 << 18


@dataclass(frozen=True)
class Labels:
    """Which cluster each point belongs to.

    Attributes
    ----------
    codes : (n,) int8, int16 or int32
        Index into ``classes``; LEFT_OUT for points that count for nothing.
    classes : list of K labels, as given
        Ascending where they have an order, else as they appear.
    sizes : (K,) int64
    """

    codes: Codes
    classes: list[Any]
    sizes: Codes

    @property
    def n_clusters(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def n_kept(self) -> int:
        """Number of points that are not left out."""
        return int(self.sizes.sum())

    def order(self) -> Codes:
        """(n_kept,) int64: the points cluster by cluster, in order within each."""
        order = np.argsort(self.codes, kind="stable")
        return order[len(order) - self.n_kept :]

    def edges(self) -> Codes:
        """(K + 1,) int64: where each cluster begins in `order`, and the last ends."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def without(self, left_out: Codes) -> Labels:
        """The same with further points left out; ``left_out`` is (n,) bool. Clusters that lose
        all of their points are gone."""
        codes = np.where(left_out, LEFT_OUT, self.codes)
        sizes = np.bincount(codes[codes >= 0], minlength=self.n_clusters)
        kept = np.flatnonzero(sizes)
        renumbered = np.full(self.n_clusters + 1, LEFT_OUT)  # the last is that of LEFT_OUT
        renumbered[kept] = np.arange(len(kept))
        classes = [self.classes[code] for code in kept]
        return Labels(_smallest(renumbered[codes], len(kept)), classes, sizes[kept])


@dataclass(frozen=True)
class StoredVector:
    """One number for each point, in a ``.npy`` file that other processes can read."""

    path: str

    def __getitem__(self, points: slice) -> Codes:
        return np.array(map_npy(self.path)[points])


def read_labels(
    labels: Any, n: int | None, *, name: str = "labels", noise: str | None = None
) -> Labels:
    """Bring labels into the one checked form.

    Parameters
    ----------
    labels : (n,) sequence or array of hashables, path of a .npy file or Zarr array, Zarr or Dask
        array; or `Labels`, which are returned as they are
    n : int or None
        Number of points; None: as many as there are labels.
    name : str
        How messages call the argument.
    noise : "cluster", "drop", "singleton" or None
        What points labelled -1 are: a cluster like any other, left out, or each a cluster of its
        own. None: a cluster, with a warning if there are any.

    Raises
    ------
    InputError
        Not one label for each point, None, NaN or masked ones among them, or labels that are not
        hashable.
    InputTypeError
        No sequence: also a set or a dictionary, whose entries are not in the order of the points.
    InputNotFoundError
        A path that does not exist.
    """
    if noise is not None and noise not in NOISE_KINDS:
        raise InputError(f"noise must be one of {', '.join(NOISE_KINDS)}; got {noise!r}.")
    if isinstance(labels, Labels):
        if n not in (None, len(labels.codes)):
            raise InputError(f"{name} are of {len(labels.codes):,} points; there are {n:,}.")
        return labels
    source = _opened(labels, name)
    if len(source.shape) != 1 or n not in (None, source.shape[0]):
        points = "each point" if n is None else f"each of the {n:,} points"
        raise InputError(
            f"{name} must have one entry for {points}; their shape is {tuple(source.shape)}."
        )
    codes = np.empty(source.shape[0], np.int32)
    known: dict[Any, int] = {}
    for start, block in _blocks(source):
        codes[start : start + len(block)] = _coded(block, known, name)
    classes = list(known)
    try:
        order = sorted(range(len(classes)), key=classes.__getitem__)
    except TypeError:  # they can be told apart, which is enough
        order = list(range(len(classes)))
    place = np.empty(len(classes), np.int32)
    place[order] = np.arange(len(classes), dtype=np.int32)
    codes, classes = place[codes], [classes[i] for i in order]
    if NOISE in classes:
        codes, classes = _with_noise(codes, classes, noise, name)
    sizes = np.bincount(codes[codes >= 0], minlength=len(classes)).astype(np.int64)
    return Labels(_smallest(codes, len(classes)), classes, sizes)


def check_number_of_clusters(labels: Labels, name: str = "labels") -> None:
    """Raise unless there are from 2 to n - 1 clusters.

    Raises
    ------
    InputError
    """
    n, n_clusters = labels.n_kept, labels.n_clusters
    if not 2 <= n_clusters <= n - 1:
        raise InputError(
            f"{name} name {n_clusters:,} cluster{'s' * (n_clusters != 1)} among {n:,} points; "
            f"from 2 to n - 1 = {n - 1:,} are needed."
        )


def _opened(labels: Any, name: str) -> Any:
    if isinstance(labels, (str, os.PathLike)):
        return open_array(os.fspath(labels), name)
    if type(labels).__module__.split(".")[0] == "zarr":
        return open_zarr_array(labels, name)
    chunks = getattr(labels, "chunks", None)
    if chunks:  # Dask, or what looks like it
        unknown = any(size != size for size in np.ravel(chunks[0]))
        return np.asanyarray(labels.compute()) if unknown else labels
    if hasattr(labels, "__array__"):  # as a whole: slices of pandas may go by its index
        return np.asanyarray(labels)
    if isinstance(labels, (Mapping, Set)):
        raise InputTypeError(
            f"{name} must be a sequence in the order of the points; got a {type(labels).__name__}."
        )
    try:
        listed = list(labels)
    except TypeError as error:
        raise InputTypeError(f"{name} must be a sequence; got {labels!r}.") from error
    for kind in (str, (int, float, np.number)):
        if all(isinstance(label, kind) for label in listed):
            array = np.array(listed)
            if array.tolist() == listed:  # large integers can turn into one float
                return array
    array = np.empty(len(listed), object)  # 1 and "1" stay apart, and so do tuples
    for i, label in enumerate(listed):
        array[i] = label
    return array


def _blocks(source: Any) -> Iterator[tuple[int, Codes]]:
    n = source.shape[0]
    chunks = getattr(source, "chunks", None)
    step = BLOCK_LABELS
    if chunks:  # whole chunks of Zarr, or the largest of Dask
        longest = max(1, int(np.max(chunks[0])))
        step = longest * max(1, BLOCK_LABELS // longest)
    for start in range(0, n, step):
        block = source[start : start + step]
        block = block.compute() if hasattr(block, "compute") else block
        if np.ma.is_masked(block):
            missing = np.ma.getmaskarray(block)
            block = np.ma.getdata(block).astype(object)
            block[missing] = None
        yield start, np.asarray(block)


def _coded(block: Codes, known: dict[Any, int], name: str) -> Codes:
    """Codes of a block by first appearance; ``known`` grows."""
    if block.dtype.kind in "OV":
        found, inverse = _distinct_objects(block, name)
    else:
        values, inverse = np.unique(block, return_inverse=True)
        # Nanoseconds would become plain integers.
        found = list(values) if values.dtype.kind in "mM" else values.tolist()
    if any(_is_missing(label) for label in found):
        raise InputError(
            f"{name} have None or NaN, which tells nothing of a point's cluster; give it a label."
        )
    return np.array([known.setdefault(label, len(known)) for label in found], np.int32)[inverse]


def _distinct_objects(block: Codes, name: str) -> tuple[list[Any], Codes]:
    seen: dict[Any, int] = {}
    try:
        inverse = [seen.setdefault(label, len(seen)) for label in block.tolist()]
    except TypeError as error:
        raise InputError(f"{name} must be hashable: {error}.") from error
    return list(seen), np.array(inverse, np.int64)


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError):  # such as pandas.NA
        return True


def _with_noise(
    codes: Codes, classes: list[Any], noise: str | None, name: str
) -> tuple[Codes, list[Any]]:
    """Codes and classes, points labelled NOISE taken for what they are said to be."""
    code = classes.index(NOISE)
    alone = codes == code
    if noise is None:
        warn(
            f"{name} have -1 for {int(alone.sum()):,} points, which count as a cluster like any "
            'other. If these are noise, say noise="drop" or noise="singleton"; noise="cluster" '
            "silences this."
        )
    if noise in (None, "cluster"):
        return codes, classes
    others = classes[:code] + classes[code + 1 :]
    codes = np.where(codes > code, codes - 1, codes)
    if noise == "drop":
        return np.where(alone, LEFT_OUT, codes), others
    codes[alone] = len(others) + np.arange(alone.sum(), dtype=codes.dtype)
    return codes, others + [NOISE] * int(alone.sum())


def _smallest(codes: Codes, n_clusters: int) -> Codes:
    """The same codes in as few bytes as will do."""
    for dtype in (np.int8, np.int16):
        if n_clusters <= np.iinfo(dtype).max:
            return codes.astype(dtype)
    return codes.astype(np.int32)
