"""Every error and warning silchunk raises; each error is also the builtin a caller would expect."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path


class SilchunkError(Exception):
    """Base of every error raised on purpose."""


class InputError(SilchunkError, ValueError):
    """An argument or a data set has a wrong value; the message names it and the remedy."""


class InputTypeError(SilchunkError, TypeError):
    """An argument or a data set is of a kind that cannot be read."""


class InputNotFoundError(SilchunkError, FileNotFoundError):
    """A path that was given as input does not exist."""


class OutputExistsError(SilchunkError, FileExistsError):
    """An output path is taken already; nothing is overwritten unless asked for."""


class OverBudgetError(SilchunkError, MemoryError):
    """The job cannot be planned within the memory budget; raised before any work starts."""


class StoreError(SilchunkError):
    """Base of errors about a stored distance matrix."""


class ForeignStoreError(StoreError, FileExistsError):
    """The path holds something that silchunk did not make; it is left as it is."""


class StaleStoreError(StoreError, ValueError):
    """The store was built from other input or with other parameters."""


class UnsealedStoreError(StoreError, ValueError):
    """The store's build has not ended yet; building it again with the same input goes on."""


class DamagedStoreError(StoreError, OSError):
    """The store is not as it was written; the message names the place and the remedy."""


class StoreInUseError(StoreError, BlockingIOError):
    """Another process is building the store."""


class DiskFullError(SilchunkError, OSError):
    """A write failed for want of space, or would; the message has path and bytes."""


class StoppedError(SilchunkError, InterruptedError):
    """The job was asked to stop; what is done is recorded, and the same call goes on with it."""


class ClusterError(SilchunkError, RuntimeError):
    """The Dask cluster lost the job: no workers, killed workers or a closed client."""


class SilchunkWarning(UserWarning):
    """Base of every warning issued by silchunk."""


class LooksPrecomputedWarning(SilchunkWarning):
    """Points that look like a distance matrix: ``metric="precomputed"`` was probably meant."""


class SlowMetricWarning(SilchunkWarning):
    """A metric that runs serially in Python; the message names what is faster."""


class CoincidentCentroidsWarning(SilchunkWarning):
    """Clusters whose means coincide, so that an index has no say on how far apart they are."""


class ZeroDiameterWarning(SilchunkWarning):
    """All clusters have diameter 0, by which a Dunn index cannot divide."""


def warn(message: str, category: type[SilchunkWarning] = SilchunkWarning) -> None:
    """Issue a warning that points at the line of the caller's, outside this package."""
    level = 1
    own = (str(Path(__file__).parent), contextlib.__file__)
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
