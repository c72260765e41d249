"""Libraries that only some formats need."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from silchunk.errors import InputError

# The extra that installs each.
EXTRAS = {"pyarrow": "table", "h5py": "hdf5"}
# Memory that each takes: pyarrow with pandas, which it loads where that is installed.
BYTES = {"pyarrow": 96 << 20, "h5py": 16 << 20}


def bytes_of(names: Iterable[str]) -> int:
    """Memory that these libraries take."""
    return sum(BYTES[name] for name in names)


def needed(module: str, described: str) -> Any:
    """Import a library that ``described``, what is to be read, needs.

    Raises
    ------
    InputError
        It is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise InputError(
            f"{described} needs the package {package}, which is not installed here: "
            f'python -m pip install "silchunk[{EXTRAS[package]}]"'
        ) from error
