"""Out-of-core judging of clusterings: the silhouette's upper bound and what goes with it.

What computes is imported when first used, so that ``import silchunk`` and ``silchunk --help``
stay instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from silchunk.errors import (
    ClusterError,
    InputError,
    InputNotFoundError,
    InputTypeError,
    LooksPrecomputedWarning,
    OutputExistsError,
    OverBudgetError,
    SilchunkError,
    SilchunkWarning,
    SlowMetricWarning,
)
from silchunk.plan import Plan

if TYPE_CHECKING:
    from silchunk.bounds import (
        BoundResult,
        Estimate,
        estimate_bounds,
        numerical_slack,
        silhouette_bounds,
        silhouette_upper_bound,
        silhouette_upper_bound_samples,
    )

__version__ = "0.1.0"
__all__ = [
    "BoundResult",
    "ClusterError",
    "Estimate",
    "InputError",
    "InputNotFoundError",
    "InputTypeError",
    "LooksPrecomputedWarning",
    "OutputExistsError",
    "OverBudgetError",
    "Plan",
    "SilchunkError",
    "SilchunkWarning",
    "SlowMetricWarning",
    "estimate_bounds",
    "numerical_slack",
    "silhouette_bounds",
    "silhouette_upper_bound",
    "silhouette_upper_bound_samples",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'silchunk' has no attribute {name!r}")
    return getattr(import_module("silchunk.bounds"), name)


def __dir__() -> list[str]:
    return __all__
