"""One page about a clustering: how it scores, and how much better any other could."""

from __future__ import annotations

import math
import os
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk.agreement import LabelAgreement, compare_labels
from silchunk.bound_result import BoundResult
from silchunk.bounds import silhouette_bounds, silhouette_upper_bound
from silchunk.ceilings import Ceiling, ceilings_of, curve_sizes
from silchunk.confidence import checked_confidence
from silchunk.dunn import dunn_score
from silchunk.engine import Scheduler
from silchunk.errors import InputError
from silchunk.indices import calinski_harabasz_score, davies_bouldin_score
from silchunk.labels import Labels, check_number_of_clusters, read_labels
from silchunk.metric_kinds import PairwiseMetric
from silchunk.pages import write_new
from silchunk.panels import PointPanels
from silchunk.plan import Plan
from silchunk.prepare import FITTED_METRICS, Arguments, metric_of, opened, prepared
from silchunk.progress import Progress
from silchunk.report import report_page
from silchunk.rounding import at_most
from silchunk.rows import RowSource, SelectedRows
from silchunk.sampling import SampledBound
from silchunk.silhouette_result import SilhouetteTable
from silchunk.silhouettes import silhouette_table


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation:
    """What `evaluate` found. Printing it gives a page to read.

    Attributes
    ----------
    silhouettes : SilhouetteTable
        Of points and clusters.
    micro, macro : float
        Average silhouette width, and mean of the clusters' means.
    bounds : BoundResult, or SampledBound from a sample
    any_clustering, smallest_cluster, these_sizes : Ceiling
        For ``micro``: over any clustering, over those with no cluster smaller than the smallest
        one here, and over those with clusters of just these sizes; the last is None from a sample.
        From one, ceilings are upper limits that hold with the confidence asked for.
    macro_these_sizes : Ceiling or None
        For ``macro``, over clusterings with clusters of just these sizes; None from a sample.
    dunn : float or None
        None from a sample: it is a matter of single pairs.
    davies_bouldin, calinski_harabasz : float or None
        None for a distance matrix, which has no centroids.
    agreement : LabelAgreement or None
        With the true labels, if these were given.
    n_features : int or None
        Of the points; None for a distance matrix.
    seconds : float
        That it took.
    """

    silhouettes: SilhouetteTable
    bounds: BoundResult | SampledBound
    any_clustering: Ceiling
    smallest_cluster: Ceiling
    these_sizes: Ceiling | None
    macro_these_sizes: Ceiling | None
    dunn: float | None
    davies_bouldin: float | None
    calinski_harabasz: float | None
    agreement: LabelAgreement | None
    n_features: int | None
    seconds: float

    @property
    def micro(self) -> float:
        """Average silhouette width."""
        return self.silhouettes.micro

    @property
    def macro(self) -> float:
        """Mean of the clusters' mean silhouettes."""
        return self.silhouettes.macro

    @property
    def plan(self) -> Plan:
        """How the largest of the jobs was cut."""
        return self.bounds.plan if isinstance(self.bounds, BoundResult) else self.silhouettes.plan

    @property
    def sample_size(self) -> int | None:
        """Number of points that silhouettes and bounds are from; None for all of them."""
        return None if self.silhouettes.points is None else len(self.silhouettes.points)

    def facts(self) -> dict[str, Any]:
        """Numbers for programs."""
        clusters = self.silhouettes.clusters
        return {
            "n": self.bounds.n,
            "n_clusters": len(clusters.labels),
            "metric": self.silhouettes.metric,
            "micro": self.micro,
            "macro": self.macro,
            "sample_size": self.sample_size,
            "micro_standard_error": self.silhouettes.micro_standard_error,
            "macro_standard_error": self.silhouettes.macro_standard_error,
            "confidence": getattr(self.bounds, "confidence", None),
            "ceilings": {
                name: {"whose": c.whose, "upper_bound": c.bound, "wcre": c.wcre}
                for name, c in (
                    ("any_clustering", self.any_clustering),
                    ("smallest_cluster", self.smallest_cluster),
                    ("these_sizes", self.these_sizes),
                    ("macro_these_sizes", self.macro_these_sizes),
                )
                if c is not None
            },
            # JSON has no infinity.
            "dunn": self.dunn if self.dunn is not None and math.isfinite(self.dunn) else None,
            "davies_bouldin": self.davies_bouldin,
            "calinski_harabasz": self.calinski_harabasz,
            "clusters": [
                {"label": str(label), "size": size, "mean": mean, "negative": negative}
                for label, size, mean, negative in zip(
                    clusters.labels,
                    clusters.sizes.tolist(),
                    clusters.means.tolist(),
                    clusters.negative.tolist(),
                    strict=True,
                )
            ],
            "agreement": None
            if self.agreement is None
            else {
                name: getattr(self.agreement, name) for name in ("ari", "ami", "nmi", "accuracy")
            },
        }

    def to_html(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        source: str = "",
        command: str = "",
    ) -> str:
        """This as a page for a browser, with pictures, in one file that needs no other.

        Parameters
        ----------
        path : path of a new file, optional
            Where to write the page as well.
        source : str
            What was judged, for the page to say.
        command : str
            How to repeat it, for the page to say.

        Returns
        -------
        str

        Raises
        ------
        OutputExistsError
            ``path`` exists; it is left as it is.
        MissingExtraError
            matplotlib or jinja2 is not installed: ``pip install "silchunk[plot]"``.
        """
        page = report_page(self, source=source, command=command)
        if path is not None:
            write_new(path, page)
        return page

    def __repr__(self) -> str:
        table = str(self.silhouettes).splitlines()
        errors = (self.silhouettes.micro_standard_error, self.silhouettes.macro_standard_error)
        micro_error, macro_error = (f" +- {e:.3f}" if self.sample_size else "" for e in errors)
        lines = [
            f"A clustering of {self.bounds.n:,} points into {self.silhouettes.n_clusters:,} "
            f"clusters ({self.silhouettes.metric} distance)",
            "",
            textwrap.fill(self.verdict, 98),
            "",
            "silhouette, from -1 to 1                      score   at most   reached",
            f"  mean over points (micro)                {self.micro:>9.3f}{micro_error}",
            *_lines(self.any_clustering, self.smallest_cluster, self.these_sizes),
            f"  mean of cluster means (macro)           {self.macro:>9.3f}{macro_error}",
            *_lines(self.macro_these_sizes),
            *self._explained(),
            "",
            "other indices",
        ]
        if self.dunn is not None:
            lines.append(f"  Dunn               {self.dunn:>12.4g}   higher is better")
        if self.davies_bouldin is not None and self.calinski_harabasz is not None:
            lines += [
                f"  Davies-Bouldin     {self.davies_bouldin:>12.4g}   lower is better, 0 at best",
                f"  Calinski-Harabasz  {self.calinski_harabasz:>12.4g}   higher is better",
            ]
        lines += ["", *table[3:]]
        if self.agreement is not None:
            lines += ["", str(self.agreement)]
        return "\n".join(lines)

    def _explained(self) -> list[str]:
        if not isinstance(self.bounds, SampledBound):
            return [
                "  at most: no such clustering scores more; reached: of the best possible, at least"
            ]
        return [
            f"  from {self.sample_size:,} points, each against all others; +-: standard error of a "
            "score",
            "  at most: no such clustering scores more, with confidence "
            f"{self.bounds.confidence:g}",
        ]

    @property
    def verdict(self) -> str:
        """The score against its ceilings, in a sentence."""
        ceiling = self.these_sizes
        if self.micro <= 0:
            return (
                "On average, points of your clustering are no nearer to their own cluster than to "
                "another one."
            )
        if ceiling is None:
            return (
                f"Your clustering reaches about {int(100 * self.smallest_cluster.reached)}% of the "
                f"best possible with {self.smallest_cluster.whose}, and about "
                f"{int(100 * self.any_clustering.reached)}% of what any clustering could."
            )
        return (
            f"Your clustering reaches at least {int(100 * ceiling.reached)}% of the best possible "
            f"with these cluster sizes, and {int(100 * self.any_clustering.reached)}% of what any "
            "clustering could."
        )


def evaluate(
    X: Any,
    labels: Any,
    *,
    true_labels: Any = None,
    metric: str | Callable[..., float] = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    noise: str | None = None,
    sample_size: int | None = None,
    random_state: Any = None,
    confidence: float | None = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> Evaluation:
    """Judge a clustering: its scores, their ceilings, the other indices, each cluster.

    Parameters
    ----------
    X, labels, metric, metric_params, noise, dtype, validate, memory, progress, scheduler
        As in `silhouette_table`. Points that are dropped as noise count for nothing in the bounds,
        either.
    true_labels : (n,) labels of any kind, optional
        What the clustering should be, where that is known.
    sample_size : int, optional
        For many points: silhouettes and bounds from so many of them, each against all others. What
        needs all pairs is left out: Dunn's index, and the ceilings for these cluster sizes.
    random_state : None, int, Generator or RandomState
        What samples are drawn with.
    confidence : float, optional
        With which ceilings from a sample hold, each by itself; by default 0.95.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        X, labels or a parameter is wrong; the message says how.
    OverBudgetError
        It cannot be done within ``memory``.

    Notes
    -----
    Three passes over the n² distances, for silhouettes, bounds and Dunn's index, each within
    ``memory``; from a sample, two over sample_size · n of them.

    Examples
    --------
    >>> X = [[0.2], [0.1], [0.12], [1.34], [1.11], [1.6]]
    >>> page = evaluate(X, [0, 0, 0, 1, 1, 1])
    >>> print(round(page.micro, 4), page.smallest_cluster.whose)  # the best of all clusterings
    0.8335 clusters of 3 or more points
    """
    began = time.perf_counter()
    if sample_size is None and (confidence, random_state) != (None, None):
        raise InputError("confidence and random_state go with sample_size.")
    sure: dict[str, Any] = (
        {} if confidence is None else {"confidence": checked_confidence(confidence)}
    )
    arguments = Arguments(metric, metric_params, dtype, validate, memory, progress, scheduler)
    matrix = metric_of(X, arguments) == "precomputed"
    running: dict[str, Any] = {"memory": memory, "progress": progress, "scheduler": scheduler}
    distances: dict[str, Any] = {
        "metric": "precomputed" if matrix else metric,  # also of what is kept of a stored matrix
        "metric_params": metric_params,
        "dtype": dtype,
        "validate": validate,
    }
    with opened(X, arguments) as source:
        n, width = source.shape
        read = read_labels(labels, n, noise=noise)
        check_number_of_clusters(read)
        if metric in FITTED_METRICS and not metric_params and read.n_kept < n:
            distances["metric_params"] = _fitted_params(source, arguments)
        agreement = None if true_labels is None else compare_labels(true_labels, read)
        sample = {"sample_size": sample_size, "random_state": random_state}
        table = silhouette_table(source, read, **sample, **distances, **running)
        kept, smallest = _kept(source, read, matrix), int(read.sizes.min())
        bounds: BoundResult | SampledBound
        dunn = None
        if sample_size is None:
            sizes = read.sizes.tolist()
            bounds = silhouette_bounds(kept, cluster_sizes=sizes, **distances, **running)
            dunn = float(dunn_score(source, read, **distances, **running))
        else:
            bounds = silhouette_upper_bound(
                kept,
                min_cluster_size=curve_sizes(read.n_kept, smallest),
                **sure,
                **sample,
                **distances,
                **running,
            )
        centroids = not matrix
        davies_bouldin = davies_bouldin_score(source, read, **running) if centroids else None
        calinski_harabasz = calinski_harabasz_score(source, read, **running) if centroids else None
    over = ceilings_of(bounds, table, smallest)
    return Evaluation(
        silhouettes=table,
        bounds=bounds,
        any_clustering=over.any_clustering,
        smallest_cluster=over.smallest_cluster,
        these_sizes=over.these_sizes,
        macro_these_sizes=over.macro_these_sizes,
        dunn=dunn,
        davies_bouldin=davies_bouldin,
        calinski_harabasz=calinski_harabasz,
        agreement=agreement,
        n_features=None if matrix else width,
        seconds=time.perf_counter() - began,
    )


def _kept(source: RowSource, labels: Labels, matrix: bool) -> RowSource:
    """The points that are not left out, or their distances."""
    if labels.n_kept == source.shape[0]:
        return source
    return SelectedRows(source, np.flatnonzero(labels.codes >= 0), columns_too=matrix)


def _fitted_params(source: RowSource, arguments: Arguments) -> Mapping[str, Any]:
    """The metric's parameters from all points, so that bounds of fewer are in the same metric."""
    with prepared(source, arguments) as job:
        assert isinstance(job.panels, PointPanels)
        assert isinstance(job.panels.metric, PairwiseMetric)
        return job.panels.metric.params


def _lines(*ceilings: Ceiling | None) -> list[str]:
    return [
        f"    {ceiling.whose:<45} {at_most(ceiling.bound, 3):>9} "
        f"{max(0, int(100 * ceiling.reached)):>8}%"
        for ceiling in ceilings
        if ceiling is not None
    ]
