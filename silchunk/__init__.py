"""Out-of-core judging of clusterings: the silhouette's upper bound and what goes with it.

What computes is imported when first used, so that ``import silchunk`` and ``silchunk --help``
stay instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from silchunk.errors import (
    ClusterError,
    CoincidentCentroidsWarning,
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
    ZeroDiameterWarning,
)
from silchunk.plan import Plan

if TYPE_CHECKING:
    from silchunk.agreement import LabelAgreement, compare_labels
    from silchunk.bound_result import BoundResult, SizedBounds
    from silchunk.bounds import (
        macro_silhouette_upper_bound,
        silhouette_bounds,
        silhouette_upper_bound,
        silhouette_upper_bound_samples,
    )
    from silchunk.build import build_distances, import_distances
    from silchunk.cluster.iteration import Iteration
    from silchunk.cluster.kmeans import KMeans
    from silchunk.cluster.ksil import KSil, SphericalKSil
    from silchunk.cluster.weighted import ILOFKMeans, LOFKMeans, OWKMeans
    from silchunk.cluster_size import ClusterSize, cluster_table
    from silchunk.distances import DistanceMatrix, open_distances
    from silchunk.dunn import dunn_score, generalized_dunn_score
    from silchunk.dunn_result import DunnResult
    from silchunk.estimate import Estimate, estimate_bounds, estimate_distances
    from silchunk.evaluation import Evaluation, evaluate
    from silchunk.export import export_distances
    from silchunk.indices import (
        calinski_harabasz_score,
        davies_bouldin_score,
        simplified_silhouette_samples,
        simplified_silhouette_score,
    )
    from silchunk.plots import (
        plot_bound_curve,
        plot_ksil_history,
        plot_silhouette,
        plot_sweep,
    )
    from silchunk.points import read_points
    from silchunk.rounding import numerical_slack
    from silchunk.sampling import SampledBound
    from silchunk.scaling import ScaledRows, scaled
    from silchunk.scorers import bound_gap_scorer, silhouette_scorer
    from silchunk.silhouette_result import SampledScore, SilhouetteTable
    from silchunk.silhouettes import silhouette_samples, silhouette_score, silhouette_table
    from silchunk.sweep_result import Sweep, SweepRow
    from silchunk.sweeping import sweep
    from silchunk.verify import Verification, verify_distances

__version__ = "0.1.0"
__all__ = [
    "BoundResult",
    "ClusterError",
    "ClusterSize",
    "CoincidentCentroidsWarning",
    "DamagedStoreError",
    "DiskFullError",
    "DistanceMatrix",
    "DunnResult",
    "Estimate",
    "Evaluation",
    "ForeignStoreError",
    "ILOFKMeans",
    "InputError",
    "InputNotFoundError",
    "InputTypeError",
    "Iteration",
    "KMeans",
    "KSil",
    "LOFKMeans",
    "LabelAgreement",
    "LooksPrecomputedWarning",
    "OWKMeans",
    "OutputExistsError",
    "OverBudgetError",
    "Plan",
    "SampledBound",
    "SampledScore",
    "ScaledRows",
    "SilchunkError",
    "SilchunkWarning",
    "SilhouetteTable",
    "SizedBounds",
    "SlowMetricWarning",
    "SphericalKSil",
    "StaleStoreError",
    "StoppedError",
    "StoreError",
    "StoreInUseError",
    "Sweep",
    "SweepRow",
    "UnsealedStoreError",
    "Verification",
    "ZeroDiameterWarning",
    "bound_gap_scorer",
    "build_distances",
    "calinski_harabasz_score",
    "cluster_table",
    "compare_labels",
    "davies_bouldin_score",
    "dunn_score",
    "estimate_bounds",
    "estimate_distances",
    "evaluate",
    "export_distances",
    "generalized_dunn_score",
    "import_distances",
    "macro_silhouette_upper_bound",
    "numerical_slack",
    "open_distances",
    "plot_bound_curve",
    "plot_ksil_history",
    "plot_silhouette",
    "plot_sweep",
    "read_points",
    "scaled",
    "silhouette_bounds",
    "silhouette_samples",
    "silhouette_score",
    "silhouette_scorer",
    "silhouette_table",
    "silhouette_upper_bound",
    "silhouette_upper_bound_samples",
    "simplified_silhouette_samples",
    "simplified_silhouette_score",
    "sweep",
    "verify_distances",
]

_LAZY = {
    "silchunk.agreement": {"LabelAgreement", "compare_labels"},
    "silchunk.bound_result": {"BoundResult", "SizedBounds"},
    "silchunk.bounds": {
        "macro_silhouette_upper_bound",
        "silhouette_bounds",
        "silhouette_upper_bound",
        "silhouette_upper_bound_samples",
    },
    "silchunk.build": {"build_distances", "import_distances"},
    "silchunk.cluster.iteration": {"Iteration"},
    "silchunk.cluster.kmeans": {"KMeans"},
    "silchunk.cluster.ksil": {"KSil", "SphericalKSil"},
    "silchunk.cluster.weighted": {"ILOFKMeans", "LOFKMeans", "OWKMeans"},
    "silchunk.distances": {"DistanceMatrix", "open_distances"},
    "silchunk.dunn": {"dunn_score", "generalized_dunn_score"},
    "silchunk.dunn_result": {"DunnResult"},
    "silchunk.cluster_size": {"ClusterSize", "cluster_table"},
    "silchunk.estimate": {"Estimate", "estimate_bounds", "estimate_distances"},
    "silchunk.evaluation": {"Evaluation", "evaluate"},
    "silchunk.export": {"export_distances"},
    "silchunk.indices": {
        "calinski_harabasz_score",
        "davies_bouldin_score",
        "simplified_silhouette_samples",
        "simplified_silhouette_score",
    },
    "silchunk.rounding": {"numerical_slack"},
    "silchunk.plots": {
        "plot_bound_curve",
        "plot_ksil_history",
        "plot_silhouette",
        "plot_sweep",
    },
    "silchunk.points": {"read_points"},
    "silchunk.sampling": {"SampledBound"},
    "silchunk.scaling": {"ScaledRows", "scaled"},
    "silchunk.scorers": {"bound_gap_scorer", "silhouette_scorer"},
    "silchunk.silhouette_result": {"SampledScore", "SilhouetteTable"},
    "silchunk.silhouettes": {"silhouette_samples", "silhouette_score", "silhouette_table"},
    "silchunk.sweeping": {"sweep"},
    "silchunk.sweep_result": {"Sweep", "SweepRow"},
    "silchunk.verify": {"Verification", "verify_distances"},
}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'silchunk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
