"""Frames of pandas and polars, tables of Arrow, and arrays of xarray, as they are in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from silchunk.errors import InputError, InputTypeError
from silchunk.readers.tables import NAMED_AT_MOST
from silchunk.rows import Block

# How the names of types of polars and Arrow begin.
NUMERIC = ("int", "uint", "float", "double", "halffloat", "bool", "decimal")
SINGLE = ("Float16", "Float32", "halffloat", "float")

LIBRARIES = ("pandas", "polars", "pyarrow", "xarray")


def library_of(X: Any) -> str:
    """The library that an object is of, among these; else ""."""
    library = type(X).__module__.split(".")[0]
    return library if library in LIBRARIES else ""


def unwrapped(X: Any, name: str) -> Any:
    """The array below a frame: of NumPy, or of Dask where it is that of an xarray.DataArray.

    Raises
    ------
    InputError
        There are columns that do not hold numbers.
    InputTypeError
        It is not two-dimensional by its kind, or not read yet.
    """
    library = library_of(X)
    kind = type(X).__name__
    if library == "xarray":
        if kind != "DataArray":
            raise InputTypeError(
                f"{name} is an xarray.{kind}; pass one of its variables, such as X['name']."
            )
        return X.data
    if kind == "LazyFrame":
        raise InputTypeError(f"{name} is a polars.LazyFrame; pass X.collect().")
    if library == "pandas" and kind == "DataFrame":
        return _pandas(X, name)
    if (library, kind) in (("polars", "DataFrame"), ("pyarrow", "Table")):
        return _columns(X, library, name)
    return X


def _pandas(X: Any, name: str) -> Block:
    # numpy's kinds: what else pandas has for numbers says so itself.
    _refuse_text(
        [
            (column, str(dtype))
            for column, dtype in zip(X.columns, X.dtypes, strict=True)
            if not _is_number(dtype)
        ],
        name,
        "X.select_dtypes(['number', 'bool'])",
    )
    if all(isinstance(dtype, np.dtype) for dtype in X.dtypes):
        return np.asarray(X)
    single = all(getattr(dtype, "itemsize", 8) <= 4 and _is_float(dtype) for dtype in X.dtypes)
    values: Block = X.to_numpy(np.float32 if single else np.float64, na_value=np.nan)
    return values


def _is_number(dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        return dtype.kind in "fiub"
    return bool(getattr(dtype, "_is_numeric", False)) or getattr(dtype, "kind", "O") in "fiub"


def _is_float(dtype: Any) -> bool:
    return getattr(dtype, "kind", "") == "f"


def _columns(X: Any, library: str, name: str) -> Block:
    """Columns of polars or Arrow side by side; what is missing is NaN."""
    if library == "polars":
        columns = [(one.name, str(one.dtype), one) for one in X.get_columns()]
        remedy = "X.select(polars.selectors.numeric())"
    else:
        columns = [(one.name, str(one.type), X.column(i)) for i, one in enumerate(X.schema)]
        remedy = "X.select([...])"
    texts = [(one, kind) for one, kind, _ in columns if not kind.lower().startswith(NUMERIC)]
    _refuse_text(texts, name, remedy)
    single = all(kind in SINGLE for _, kind, _ in columns)
    array = np.empty((len(X), len(columns)), np.float32 if single else np.float64)
    for j, (_, _, values) in enumerate(columns):
        array[:, j] = np.asarray(values.to_numpy(), array.dtype)  # None becomes NaN
    return array


def _refuse_text(columns: list[tuple[Any, str]], name: str, remedy: str) -> None:
    if columns:
        told = ", ".join(f"{one!r} ({kind})" for one, kind in columns[:NAMED_AT_MOST])
        more = len(columns) - NAMED_AT_MOST
        raise InputError(
            f"{name} has columns that do not hold numbers: {told}"
            + (f" and {more:,} more" if more > 0 else "")
            + f". Leave them out, as by {remedy}."
        )
