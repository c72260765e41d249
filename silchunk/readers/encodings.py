"""How AnnData encodes what HDF5 and Zarr have no type for: sparse matrices, categories, missing
values. The specification is that of anndata's on-disk format; groups of both libraries look alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from silchunk.errors import InputError, InputTypeError
from silchunk.readers.tables import nearest
from silchunk.rows import Block

# Groups that stand for one array.
OF_ARRAYS = (
    "csr_matrix",
    "csc_matrix",
    "categorical",
    "nullable-integer",
    "nullable-boolean",
    "nullable-string-array",
)
# Paths that are looked at for a message.
LISTED_AT_MOST = 200
# Deeper groups are not AnnData's.
DEEPEST = 4


def encoding(group: Any) -> str:
    """What a group says it is; "" if nothing."""
    kind = group.attrs.get("encoding-type", "")
    return kind.decode() if isinstance(kind, bytes) else str(kind)


def is_group(node: Any) -> bool:
    """Whether it holds others, rather than values."""
    return not hasattr(node, "dtype")


def sparse_parts(group: Any, described: str) -> tuple[Any, Any, Any, tuple[int, int]]:
    """Data, indices, indptr and shape of a CSR group.

    Raises
    ------
    InputError
        It is a group of something else.
    InputTypeError
        It is a sparse matrix by columns.
    """
    kind = encoding(group)
    if kind == "csc_matrix":
        raise InputTypeError(
            f"{described} is a sparse matrix by columns (CSC); rows are read from CSR: "
            "adata.X = adata.X.tocsr(), then write it again."
        )
    if kind != "csr_matrix":
        raise no_array(group, described)
    try:
        shape = tuple(int(length) for length in group.attrs["shape"])
        parts = [group[one] for one in ("data", "indices", "indptr")]
    except KeyError as error:
        raise InputError(f"{described} is a sparse matrix without {error}.") from error
    return parts[0], parts[1], parts[2], (shape[0], shape[1])


def labels_of(group: Any, described: str) -> Block:
    """Labels that are encoded as a group: categories, or values of which some may be missing.

    Raises
    ------
    InputError
        It is a group of something else, or points have no label.
    """
    kind = encoding(group)
    if kind == "categorical":
        codes, categories = np.asarray(group["codes"][:]), group["categories"]
        # Values with a mask, as pandas has them, may be categories too.
        classes = labels_of(categories, described) if is_group(categories) else plain(categories)
        return from_codes(codes, classes, described)
    if kind.startswith("nullable-"):
        _refuse_missing(np.asarray(group["mask"][:]).astype(bool), described)
        return plain(group["values"])
    raise no_array(group, described)


def from_codes(codes: Block, classes: Block, described: str) -> Block:
    """Categories by their number; -1 is for none."""
    _refuse_missing(codes < 0, described)
    if len(codes) and codes.max() >= len(classes):
        raise InputError(f"{described} has codes beyond its {len(classes)} categories.")
    labels: Block = classes[codes]
    return labels


def plain(array: Any) -> Block:
    """All values of an array; text as Python strings."""
    read = array.asstr()[:] if _is_text_in_hdf5(array) else np.asarray(array[:])
    values: Block = np.asarray(read)
    return values if values.dtype.kind in "biuf" else values.astype(object)


def _is_text_in_hdf5(array: Any) -> bool:
    return hasattr(array, "asstr") and array.dtype.kind in "OS"


def _refuse_missing(missing: Block, described: str) -> None:
    if missing.any():
        raise InputError(
            f"{described}: row {int(missing.argmax())} (counted from 0) has no label, and so have "
            f"{int(missing.sum()):,} in all; give these points one, or leave them out."
        )


def no_array(group: Any, described: str) -> InputError:
    """The error where a group is no array, with what it holds."""
    inside = list(_inside(group, "", 0))
    return InputError(
        f"{described} is a group, not an array; it holds: {', '.join(inside[:20]) or 'nothing'}"
        + (", ..." if len(inside) > 20 else "")
    )


def no_such(root: Any, wanted: str, described: str) -> InputError:
    """The error where nothing of that path is."""
    return InputError(f"{described} has no {wanted!r}{nearest(wanted, list(_inside(root, '', 0)))}")


def arrays(root: Any) -> list[str]:
    """Paths of two-dimensional arrays and sparse matrices, some of them where there are many."""
    return [
        path
        for path in _inside(root, "", 0)
        if (
            encoding(root[path]).endswith("_matrix")
            if is_group(root[path])
            else len(root[path].shape) == 2
        )
    ]


def _inside(group: Any, above: str, depth: int) -> Iterator[str]:
    """Paths of what is in a group: values, and groups that stand for one."""
    count = 0
    for name in sorted(group.keys()):
        node = group.get(name)
        if node is None:  # a link to nowhere
            continue
        path = f"{above}{name}"
        if not is_group(node) or encoding(node) in OF_ARRAYS:
            yield path
        elif depth < DEEPEST:
            yield from _inside(node, f"{path}/", depth + 1)
        count += 1
        if count >= LISTED_AT_MOST:
            return
