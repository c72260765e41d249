"""How well two labelings of the same points agree."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silchunk.errors import InputError
from silchunk.labels import Labels, read_labels

Table = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, repr=False)
class LabelAgreement:
    """How well the clusters of a labeling agree with the classes of another.

    All scores are 1 for the same clustering, whatever its labels are called.

    Attributes
    ----------
    n, n_classes, n_clusters : int
        Number of points, of classes and of clusters.
    ari : float
        Adjusted Rand index, in [-0.5, 1]: agreement on pairs of points; about 0 by chance.
    ami : float
        Adjusted mutual information, at most 1: shared information; about 0 by chance.
    nmi : float
        Normalized mutual information, in [0, 1]: the same without regard to chance, so that many
        small clusters score high.
    accuracy : float
        Clustering accuracy, in (0, 1]: share of points whose cluster is matched with their class,
        in the one-to-one matching that has most of them.
    matching : dict
        This matching: predicted label -> true label, by predicted label. Clusters that are left
        over, or share no point with a class that is, have no entry; nor has a label that stands
        for several clusters, as -1 does where each noise point is a cluster of its own.
    """

    n: int
    n_classes: int
    n_clusters: int
    ari: float
    ami: float
    nmi: float
    accuracy: float
    matching: dict[Any, Any]

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"Agreement of two labelings of {self.n:,} points, into {self.n_classes:,} true "
                f"and {self.n_clusters:,} predicted clusters (1: the same clustering)",
                f"  adjusted Rand index {self.ari:.6f}: of pairs of points; about 0 by chance",
                f"  adjusted mutual information {self.ami:.6f}: of shared information; about 0 by "
                "chance",
                f"  normalized mutual information {self.nmi:.6f}: the same, but many small "
                "clusters score high by chance",
                f"  accuracy {self.accuracy:.6f}: share of points in the cluster that is matched "
                "with their class",
            ]
        )


def compare_labels(true_labels: Any, predicted_labels: Any) -> LabelAgreement:
    """How well predicted labels agree with true ones, whatever either are called.

    Parameters
    ----------
    true_labels, predicted_labels : (n,) sequence or array of hashables
        Also the path of a ``.npy`` file or Zarr array, a Zarr array or a Dask array. -1 is a label
        like any other. Or `silchunk.labels.Labels`: points that these leave out do not count.

    Returns
    -------
    LabelAgreement

    Raises
    ------
    InputError
        No labels at all, not as many of the one as of the other, or None, NaN or labels that are
        not hashable among them.
    InputNotFoundError
        A path that does not exist.

    Notes
    -----
    One pass over either source. With R classes and C clusters: time O(n + R C min(R, C)) for the
    matching and about O(R C + n min(R, C)) for the adjusted mutual information; memory O(n) for
    codes of the labels and 8 R C bytes for the table of how many points they share.

    References
    ----------
    Adjusted Rand index: Hubert & Arabie, J. Classif. 2 (1985) 193-218, doi:10.1007/BF01908075.
    Mutual information: Vinh, Epps & Bailey, J. Mach. Learn. Res. 11 (2010) 2837-2854. Matching:
    Kuhn, Nav. Res. Logist. Q. 2 (1955) 83-97, doi:10.1002/nav.3800020109.

    Examples
    --------
    Five of six points are in the cluster that stands for their class; the adjusted Rand index is
    (4 - 2.8) / (6.5 - 2.8).

    >>> from silchunk.agreement import compare_labels
    >>> agreement = compare_labels(["a", "a", "a", "b", "b", "b"], [7, 7, 9, 9, 9, 9])
    >>> round(agreement.accuracy, 4), round(agreement.ari, 4)
    (0.8333, 0.3243)
    >>> agreement.matching
    {7: 'a', 9: 'b'}
    """
    true = read_labels(true_labels, None, name="true_labels", noise="cluster")
    predicted = read_labels(predicted_labels, None, name="predicted_labels", noise="cluster")
    _check_lengths(true, predicted)
    true, predicted = _without_left_out(true, predicted)
    n = true.n_kept
    shared = _shared_points(true, predicted)
    pairs = _best_matching(shared)
    ari, ami, nmi = _scores(true, predicted)
    return LabelAgreement(
        n=n,
        n_classes=true.n_clusters,
        n_clusters=predicted.n_clusters,
        ari=ari,
        ami=ami,
        nmi=nmi,
        accuracy=sum(int(shared[pair]) for pair in pairs) / n,
        matching=_by_label(pairs, true, predicted),
    )


def _without_left_out(true: Labels, predicted: Labels) -> tuple[Labels, Labels]:
    """The same, of the points that both have a cluster for, in the same order."""
    left_out = (true.codes < 0) | (predicted.codes < 0)
    if left_out.all():
        raise InputError(
            "true_labels and predicted_labels have no point in common; give at least one that "
            "neither leaves out."
        )
    both = (labels.without(left_out) for labels in (true, predicted))
    first, second = (replace(labels, codes=labels.codes[~left_out]) for labels in both)
    return first, second


def _check_lengths(true: Labels, predicted: Labels) -> None:
    n, n_predicted = len(true.codes), len(predicted.codes)
    if n != n_predicted:
        raise InputError(
            f"true_labels are {n:,} and predicted_labels {n_predicted:,}; give one of each for "
            "every point."
        )


def _shared_points(true: Labels, predicted: Labels) -> Table:
    """(C, R): how many points each cluster shares with each class."""
    shape = predicted.n_clusters, true.n_clusters
    cells = predicted.codes.astype(np.int64) * true.n_clusters + true.codes
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)


def _best_matching(shared: Table) -> list[tuple[int, int]]:
    """(cluster, class) pairs that have most points in common, each in one pair at most."""
    from scipy.optimize import linear_sum_assignment

    clusters, classes = linear_sum_assignment(shared, maximize=True)
    pairs = zip(clusters.tolist(), classes.tolist(), strict=True)
    return [pair for pair in pairs if shared[pair]]


def _by_label(pairs: list[tuple[int, int]], true: Labels, predicted: Labels) -> dict[Any, Any]:
    """Labels of the pairs, where the predicted one says which cluster is meant."""
    names = Counter(predicted.classes)
    named = ((predicted.classes[cluster], true.classes[of]) for cluster, of in pairs)
    return {name: of for name, of in named if names[name] == 1}


def _scores(true: Labels, predicted: Labels) -> tuple[float, float, float]:
    """Adjusted Rand index, adjusted and normalized mutual information."""
    from sklearn import metrics

    codes = true.codes, predicted.codes
    with warnings.catch_warnings():
        # Labels that are nearly all distinct are no mistake here.
        warnings.filterwarnings("ignore", message="The number of unique classes is greater")
        return (
            float(metrics.adjusted_rand_score(*codes)),
            float(metrics.adjusted_mutual_info_score(*codes)),
            float(metrics.normalized_mutual_info_score(*codes)),
        )
