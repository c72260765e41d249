"""What a store was built from, and whether that is what is wanted now."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from silchunk import storage
from silchunk.errors import InputError, StaleStoreError

KeepBits = int | str | None


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What a store was built from that is not what is wanted now, a phrase for each."""
    found = [
        f"{key} was {old[key]!r}, now {new[key]!r}"
        for key in ("n", "dtype", "metric", "metric_params", "keep_bits")
        if old[key] != new[key]
    ]
    if old["metric_code"] != new["metric_code"]:
        found.append("the code of the metric is not the same")
    if any(old["input"][key] != new["input"][key] for key in ("kind", "digest")):
        found.append("the input is not the same")
    return found


def refuse_stale(target: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse to go on with a store of other input or parameters.

    Raises
    ------
    StaleStoreError
        Naming what differs.
    """
    found = differences(old, new)
    if found:
        raise StaleStoreError(
            f"{target} was built from something else: {'; '.join(found)}. Pass overwrite=True to "
            "replace it, or another path."
        )


def checked_bits(keep_bits: KeepBits, dtype: np.dtype[Any]) -> int | None:
    """Mantissa bits to keep, None for all of them."""
    if keep_bits is None:
        return None
    if isinstance(keep_bits, str):
        if keep_bits not in storage.PRESETS:
            raise InputError(
                f"keep_bits is a number of bits or one of {', '.join(storage.PRESETS)}; "
                f"got {keep_bits!r}."
            )
        return storage.PRESETS[keep_bits]
    most = np.finfo(dtype).nmant
    if isinstance(keep_bits, bool) or not isinstance(keep_bits, (int, np.integer)):
        raise InputError(f"keep_bits must be an integer; got {keep_bits!r}.")
    if not 1 <= keep_bits <= most:
        raise InputError(f"keep_bits must be from 1 to {most} for {dtype}; got {keep_bits}.")
    return None if keep_bits == most else int(keep_bits)


def code_digest(metric: Any) -> str:
    """Tells callables apart by what they do: code, defaults, closure and bound state.

    The same in every process, so that a build can be gone on with; "" for a metric's name.

    Raises
    ------
    InputError
        If a part of it shows nothing by which to know it again.
    """
    if not callable(metric):
        return ""
    whole = hashlib.sha256()
    _feed(whole.update, metric, [])
    return whole.hexdigest()


def _feed(add: Callable[[bytes], object], value: Any, above: list[int]) -> None:
    """Add everything that a value consists of to a digest."""
    if id(value) in above:
        add(b"itself")
        return
    above = [*above, id(value)]
    parts: list[Any]
    function = getattr(value, "py_func", value)  # of a numba dispatcher
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        parts = []
        add(repr(value).encode())
    elif isinstance(value, (np.ndarray, np.generic)) and np.asarray(value).dtype != object:
        array = np.ascontiguousarray(value)
        parts = [array.shape, array.dtype.str, array.tobytes()]
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    elif isinstance(value, (set, frozenset)):
        parts = sorted(value, key=repr)
    elif isinstance(value, dict):
        parts = [part for key in sorted(value, key=repr) for part in (key, value[key])]
    elif isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, types.MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, types.CodeType):
        parts = [value.co_code, value.co_consts, value.co_names, value.co_varnames]
    elif isinstance(function, types.FunctionType):
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        parts = [function.__module__, function.__qualname__, function.__code__]
        parts += [function.__defaults__, function.__kwdefaults__, cells]
        names = [name for name in function.__code__.co_names if name in function.__globals__]
        constants = (int, float, str, bytes, tuple, np.ndarray)
        parts += [v for v in map(function.__globals__.get, names) if isinstance(v, constants)]
    elif isinstance(value, (type, types.BuiltinFunctionType, types.ModuleType, np.ufunc)):
        parts = [getattr(value, "__module__", ""), value.__name__]
    elif hasattr(value, "__dict__"):
        parts = [type(value).__module__, type(value).__qualname__, vars(value)]
        call = vars(type(value)).get("__call__")
        parts += [] if call is None else [call]
    else:
        raise InputError(
            f"the metric uses {value!r}, by which it cannot be known again when a build goes on. "
            "Use a plain function whose parameters are numbers, strings or arrays."
        )
    add(f"<{type(value).__name__} {len(parts)}>".encode())
    for part in parts:
        _feed(add, part, above)
