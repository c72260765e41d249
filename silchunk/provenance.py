"""What a store was built from, and whether that is what is wanted now."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from silchunk import store
from silchunk.errors import InputError, StaleStoreError

KeepBits = int | str | None


def refuse_stale(target: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Compare what a store was built from with what is wanted now.

    Raises
    ------
    StaleStoreError
        Naming what differs.
    """

    def of(header: dict[str, Any]) -> dict[str, Any]:
        keys = ("n", "dtype", "metric", "metric_params", "metric_code", "keep_bits")
        facts = {key: header[key] for key in keys}
        return facts | {"input": (header["input"]["kind"], header["input"]["digest"])}

    before, now = of(old), of(new)
    different = [key for key in now if before[key] != now[key]]
    if different:
        details = "; ".join(
            f"{key} was {before[key]!r}, now {now[key]!r}"
            if key not in ("input", "metric_code")
            else f"the {'input' if key == 'input' else 'code of the metric'} is not the same"
            for key in different
        )
        raise StaleStoreError(
            f"{target} was built from something else: {details}. Pass overwrite=True to replace "
            "it, or another path."
        )


def checked_bits(keep_bits: KeepBits, dtype: Any) -> int | None:
    """Mantissa bits to keep, None for all of them."""
    if keep_bits is None:
        return None
    if isinstance(keep_bits, str):
        if keep_bits not in store.PRESETS:
            raise InputError(
                f"keep_bits is a number of bits or one of {', '.join(store.PRESETS)}; "
                f"got {keep_bits!r}."
            )
        return store.PRESETS[keep_bits]
    most = np.finfo(np.dtype(dtype)).nmant
    if isinstance(keep_bits, bool) or not isinstance(keep_bits, (int, np.integer)):
        raise InputError(f"keep_bits must be an integer; got {keep_bits!r}.")
    if not 1 <= keep_bits <= most:
        raise InputError(
            f"keep_bits must be from 1 to {most} for {np.dtype(dtype)}; got {keep_bits}."
        )
    return None if keep_bits == most else int(keep_bits)


def code_digest(metric: Any) -> str:
    """Tells callables of one name apart by what they do, as far as their code shows it."""
    if not callable(metric):
        return ""
    function = getattr(metric, "py_func", metric)
    code = getattr(function, "__code__", None)
    parts = (
        getattr(metric, "__module__", ""),
        getattr(metric, "__qualname__", type(metric).__qualname__),
        (code.co_code, code.co_consts, code.co_names) if code is not None else repr(metric),
        getattr(function, "__defaults__", None),
        [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()],
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()
