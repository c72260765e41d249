"""One BLAS thread in a task: parallelism is over panels."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: Any = None
_found: tuple[tuple[str, ...], ThreadpoolController] | None = None


def _controller() -> ThreadpoolController:
    """What controls the libraries that are loaded; to look for them takes milliseconds, so that is
    done again only when modules have been imported meanwhile. Not their number tells: one may have
    gone and another come."""
    global _found
    modules = tuple(sys.modules)
    if _found is None or _found[0] != modules:
        _found = modules, ThreadpoolController()
    return _found[1]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread while any task of this process runs.

    The limit is one setting for the whole process, so it is set by the first task to enter and
    lifted by the last to leave.
    """
    global _blas_users, _blas_limit
    with _blas_lock:
        if _blas_users == 0:
            _blas_limit = _controller().limit(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()
