"""Bounds from a sample of the rows: an estimate, how sure it is, and an upper limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk import confidence as limits
from silchunk.bound_jobs import Path, bound_job
from silchunk.bound_result import certificate, family, worst_case_error
from silchunk.constraints import Sizes, size_range
from silchunk.draws import draw_rows
from silchunk.errors import InputError
from silchunk.prepare import Arguments
from silchunk.reduction import Wanted
from silchunk.rounding import at_most

Vector = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, repr=False)
class SampledBound:
    """The upper bound of the average silhouette width, estimated from some of its rows.

    Attributes
    ----------
    estimate : float, or array with one entry for each minimum cluster size
        Mean of the sampled points' bounds: on average neither above nor below the bound, so no
        bound itself.
    standard_error : float or array
        Of the estimate.
    upper_limit : float or array
        With probability ``confidence`` over the draw of the sample, the bound is below this, and so
        is every clustering's score: one probability for each entry.
    confidence : float
    n, sample_size : int
        Number of points, and of those sampled.
    metric : str
    min_cluster_size : int or tuple of int
    n_clusters : int or None
    certified_for : "points", "distances" or None
        What the sampled points' bounds hold for in exact arithmetic; see `BoundResult`.
    """

    estimate: Any
    standard_error: Any
    upper_limit: Any
    confidence: float
    n: int
    sample_size: int
    metric: str
    min_cluster_size: int | tuple[int, ...]
    n_clusters: int | None
    certified_for: str | None

    @property
    def certified(self) -> bool:
        """Whether the sampled points' bounds hold in exact arithmetic."""
        return self.certified_for is not None

    def at(self, min_cluster_size: int) -> float:
        """Upper limit for a minimum cluster size, one of those asked for.

        Raises
        ------
        InputError
            It was not asked for.
        """
        asked = np.ravel(self.min_cluster_size).tolist()
        if min_cluster_size not in asked:
            raise InputError(
                f"there is no limit for min_cluster_size {min_cluster_size!r}; the sample was "
                f"asked for {', '.join(map(str, asked))}."
            )
        return float(np.ravel(self.upper_limit)[asked.index(min_cluster_size)])

    def wcre(self, asw: float) -> float:
        """Worst-case relative error of a clustering that scored ``asw``: ``(limit - asw) / limit``
        of the (first) upper limit.

        Raises
        ------
        InputError
            If ``asw`` is no silhouette, or above the limit.
        """
        limit = float(np.ravel(self.upper_limit)[0])
        whose = family(int(np.ravel(self.min_cluster_size)[0]), self.n_clusters)
        return worst_case_error(
            asw,
            limit,
            f"limit {limit:.6g}, below which the bound is with confidence {self.confidence:g}: "
            f"that is very unlikely if it was computed on the same points, in the same metric "
            f"({self.metric}), for {whose}.",
        )

    def __repr__(self) -> str:
        lines = [
            f"Silhouette upper bound of {self.n:,} points ({self.metric} distance), from "
            f"{self.sample_size:,} of them"
        ]
        for m, estimate, error, limit in zip(
            np.ravel(self.min_cluster_size),
            np.ravel(self.estimate),
            np.ravel(self.standard_error),
            np.ravel(self.upper_limit),
            strict=True,
        ):
            lines.append(
                f"  {family(int(m), self.n_clusters)}: about {estimate:.6f} (standard error "
                f"{error:.6f}), with confidence {self.confidence:g} <= {at_most(limit)}"
            )
        return "\n".join(lines + certificate(self.certified_for))


def sampled_bound(
    X: Any,
    arguments: Arguments,
    *,
    min_cluster_size: Sizes,
    n_clusters: int | None,
    sample_size: Any,
    random_state: Any,
    confidence: float,
    checkpoint: Path,
) -> SampledBound:
    """Draw rows, bound each of them against all points, and sum up."""
    if checkpoint is not None and random_state is None:
        raise InputError(
            "a checkpoint of a sample needs random_state: without one, another sample would be "
            "drawn when it goes on."
        )

    def wanted_of(n: int) -> Wanted:
        return Wanted(size_range(min_cluster_size, n_clusters, n))

    def rows_of(n: int) -> Vector:
        return draw_rows(sample_size, random_state, n)

    with bound_job(X, arguments, wanted_of, rows_of=rows_of, checkpoint=checkpoint) as (
        job,
        reduced,
    ):
        within, columns = reduced.wanted.within, reduced.samples.T.copy()
        assert within is not None
        one = np.ndim(min_cluster_size) == 0
        limits_ = [limits.upper_limit(column, job.n, confidence) for column in columns]
        found = [
            columns.mean(axis=1),
            np.array([limits.standard_error(column, job.n) for column in columns]),
            # The mean, rounded as asked for, is all that is known of a sample of all points.
            np.maximum(limits_, reduced.means),
        ]
        estimate, error, limit = [float(values[0]) if one else values for values in found]
        return SampledBound(
            estimate=estimate,
            standard_error=error,
            upper_limit=limit,
            confidence=confidence,
            n=job.n,
            sample_size=columns.shape[1],
            metric=job.metric_name,
            min_cluster_size=within.smallest[0] if one else within.smallest,
            n_clusters=within.n_clusters,
            certified_for=job.certified_for,
        )
