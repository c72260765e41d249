"""Files that a reader makes, which live as long as the rows that lie in them."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from silchunk import engine
from silchunk.rows import NpyRows
from silchunk.sparse_rows import CsrRows


@contextmanager
def scratch() -> Iterator[Path]:
    """A new private folder below Dask's ``temporary-directory``, which workers can see too.

    It goes if filling it fails, and else stays, to be owned.
    """
    folder = Path(tempfile.mkdtemp(prefix="silchunk-", dir=engine.scratch_parent()))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


_made: ContextVar[list[weakref.finalize[..., Any]] | None] = ContextVar("made", default=None)


@contextmanager
def removed_at_the_end() -> Iterator[None]:
    """Whatever is made to be owned within it is gone after it, even if rows are left over, such as
    those that an error's traceback holds."""
    made: list[weakref.finalize[..., Any]] = []
    token = _made.set(made)
    try:
        yield
    finally:
        _made.reset(token)
        for remove in made:
            remove()


def owning(rows: NpyRows | CsrRows, folder: Path) -> None:
    """Delete ``folder`` when ``rows`` is gone, or when the interpreter ends.

    Copies that were pickled for a worker own nothing.
    """
    remove = weakref.finalize(rows, _remove, folder, os.getpid())
    made = _made.get()
    if made is not None:
        made.append(remove)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked process has a copy of the rows, and is not to delete them
        shutil.rmtree(folder, ignore_errors=True)
