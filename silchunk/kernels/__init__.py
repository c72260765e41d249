"""Loops over blocks in memory: no Dask, no Zarr, no input or output.

A module of kernels is loaded when something of it is first used: most are compiled by numba, which
takes time and much memory to be there at all, and not all that silchunk does needs one of these.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def __getattr__(name: str) -> "_Kernels":
        full_name = f"{__name__}.{name}"
        if name.startswith("_") or find_spec(full_name) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _Kernels(full_name)


class _Kernels:
    """A module that is imported at the first look into it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # asked for by what copies or inspects
            raise AttributeError(attribute)
        found = getattr(import_module(self._name), attribute)
        setattr(self, attribute, found)  # from now on as fast as in the module itself
        return found
