"""Out-of-core judging of clusterings: the silhouette's upper bound and what goes with it.

What computes is imported when first used, so that ``import silchunk`` and ``silchunk --help``
stay instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from silchunk.errors import (
    ClusterError,
    DamagedStoreError,
    DiskFullError,
    ForeignStoreError,
    InputError,
    InputNotFoundError,
    InputTypeError,
    LooksPrecomputedWarning,
    OutputExistsError,
    OverBudgetError,
    SilchunkError,
    SilchunkWarning,
    SlowMetricWarning,
    StaleStoreError,
    StoppedError,
    StoreError,
    StoreInUseError,
    UnsealedStoreError,
)
from silchunk.plan import Plan

if TYPE_CHECKING:
    from silchunk.bound_result import BoundResult, SizedBounds
    from silchunk.bounds import (
        macro_silhouette_upper_bound,
        silhouette_bounds,
        silhouette_upper_bound,
        silhouette_upper_bound_samples,
    )
    from silchunk.build import build_distances, import_distances
    from silchunk.distances import DistanceMatrix, open_distances
    from silchunk.estimate import Estimate, estimate_bounds
    from silchunk.export import export_distances
    from silchunk.rounding import numerical_slack
    from silchunk.sampling import SampledBound
    from silchunk.verify import Verification, verify_distances

__version__ = "0.1.0"
__all__ = [
    "BoundResult",
    "ClusterError",
    "DamagedStoreError",
    "DiskFullError",
    "DistanceMatrix",
    "Estimate",
    "ForeignStoreError",
    "InputError",
    "InputNotFoundError",
    "InputTypeError",
    "LooksPrecomputedWarning",
    "OutputExistsError",
    "OverBudgetError",
    "Plan",
    "SampledBound",
    "SilchunkError",
    "SilchunkWarning",
    "SizedBounds",
    "SlowMetricWarning",
    "StaleStoreError",
    "StoppedError",
    "StoreError",
    "StoreInUseError",
    "UnsealedStoreError",
    "Verification",
    "build_distances",
    "estimate_bounds",
    "export_distances",
    "import_distances",
    "macro_silhouette_upper_bound",
    "numerical_slack",
    "open_distances",
    "silhouette_bounds",
    "silhouette_upper_bound",
    "silhouette_upper_bound_samples",
    "verify_distances",
]

_LAZY = {
    "silchunk.bound_result": {"BoundResult", "SizedBounds"},
    "silchunk.bounds": {
        "macro_silhouette_upper_bound",
        "silhouette_bounds",
        "silhouette_upper_bound",
        "silhouette_upper_bound_samples",
    },
    "silchunk.build": {"build_distances", "import_distances"},
    "silchunk.distances": {"DistanceMatrix", "open_distances"},
    "silchunk.estimate": {"Estimate", "estimate_bounds"},
    "silchunk.export": {"export_distances"},
    "silchunk.rounding": {"numerical_slack"},
    "silchunk.sampling": {"SampledBound"},
    "silchunk.verify": {"Verification", "verify_distances"},
}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'silchunk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
