"""Silhouettes of points and clusters, and their means, as they are handed to people."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from silchunk.confidence import standard_error
from silchunk.errors import InputError
from silchunk.kernels.silhouette import NEAREST, A, B, S
from silchunk.labels import Labels
from silchunk.plan import Plan, ranges
from silchunk.row_table import Folder
from silchunk.rows import Block, RowSource
from silchunk.silhouette_store import write_table

if TYPE_CHECKING:
    import pandas

Vector = np.ndarray[Any, np.dtype[Any]]

AVERAGES = ("micro", "macro")
# Rows of a table in a file that are read at once; and silhouettes of clusters summed up together.
BLOCK_ROWS = 1 << 16
GROUP_POINTS = 1 << 22
# Clusters that a table prints.
MOST_SHOWN = 20


@dataclass(frozen=True)
class ClusterSilhouettes:
    """Silhouettes of each of K clusters.

    Attributes
    ----------
    labels : list of K labels
    sizes : (K,) int64
        Number of points.
    means, medians, minima : (K,) float64
        Of the points' silhouettes, weighted where weights were given.
    negative : (K,) float64
        Share of points with a silhouette below 0, which are nearer to another cluster.
    standard_errors : (K,) float64
        Of the means; 0 unless sampled, infinite for a cluster of which one point of more was seen.
    """

    labels: list[Any]
    sizes: Vector
    means: Vector
    medians: Vector
    minima: Vector
    negative: Vector
    standard_errors: Vector

    def columns(self) -> dict[str, Vector]:
        """All numbers by name, for tables."""
        return {
            "size": self.sizes,
            "mean": self.means,
            "median": self.medians,
            "min": self.minima,
            "negative": self.negative,
            "standard_error": self.standard_errors,
        }


class SampledScore(float):
    """A mean silhouette estimated from a sample of the points: a float that knows its error.

    Attributes
    ----------
    standard_error : float
    sample_size, n : int
    """

    standard_error: float
    sample_size: int
    n: int

    def __new__(cls, value: float, standard_error: float, sample_size: int, n: int) -> SampledScore:
        """A score with its error."""
        score = super().__new__(cls, value)
        score.standard_error, score.sample_size, score.n = standard_error, sample_size, n
        return score

    def __reduce__(self) -> tuple[Any, ...]:
        return SampledScore, (float(self), self.standard_error, self.sample_size, self.n)

    def __repr__(self) -> str:
        return (
            f"{float(self):.6f} (standard error {self.standard_error:.6f}, from "
            f"{self.sample_size:,} of {self.n:,} points)"
        )


@dataclass(frozen=True, repr=False, eq=False)
class SilhouetteTable:
    """Silhouettes of points, clusters and the whole. Printing it explains it.

    Attributes
    ----------
    n, n_clusters : int
        Points and clusters; points that were left out as noise count in ``n``.
    metric : str
    points : (m,) int64 or None
        Which points were looked at, where they are a sample.
    clusters : ClusterSilhouettes
    micro, macro : float
        Mean over points; mean of the clusters' means.
    micro_standard_error, macro_standard_error : float
        0 unless sampled.
    plan : Plan
        How the job was cut.
    """

    n: int
    metric: str
    points: Vector | None
    plan: Plan
    _labels: Labels
    _totals: Vector  # (K,) numbers of points, or sums of weights
    _sample_weight: Vector | None
    _rows: RowSource
    _folder: Folder | None = field(default=None)

    @property
    def n_clusters(self) -> int:
        """K."""
        return self._labels.n_clusters

    @property
    def samples(self) -> Vector:
        """(m,) float64: silhouette of each point; NaN where it was left out."""
        return self._column(S)

    @property
    def a(self) -> Vector:
        """(m,) float64: mean distance to the others of the own cluster; NaN where it is alone."""
        return self._column(A)

    @property
    def b(self) -> Vector:
        """(m,) float64: least mean distance to another cluster."""
        return self._column(B)

    @property
    def cluster(self) -> list[Any]:
        """Label of each point's cluster; None where it was left out."""
        return self._named(self._codes())

    @property
    def nearest(self) -> list[Any]:
        """Label of the nearest other cluster, whose mean distance is b."""
        return self._named(np.nan_to_num(self._column(NEAREST), nan=-1.0).astype(np.int64))

    @cached_property
    def clusters(self) -> ClusterSilhouettes:
        """Silhouettes of each cluster."""
        columns = np.empty((5, self.n_clusters))
        for first, last in self._groups():
            columns[:, first:last] = self._summaries(first, last)
        means, medians, minima, negative, errors = columns
        labels = self._labels
        return ClusterSilhouettes(
            labels.classes, labels.sizes, means, medians, minima, negative, errors
        )

    @property
    def micro(self) -> float:
        """Mean over points, the average silhouette width."""
        return float(self.clusters.means @ self._shares)

    @property
    def macro(self) -> float:
        """Mean of the clusters' means."""
        return float(self.clusters.means.mean())

    @property
    def micro_standard_error(self) -> float:
        """Of ``micro``, where points are a sample."""
        return float(np.sqrt(np.sum((self._shares * self.clusters.standard_errors) ** 2)))

    @property
    def macro_standard_error(self) -> float:
        """Of ``macro``, where points are a sample."""
        return float(np.sqrt(np.sum(self.clusters.standard_errors**2))) / self.n_clusters

    def score(self, average: str) -> float:
        """``micro`` or ``macro``; a `SampledScore` where points are a sample."""
        micro = checked_average(average) == "micro"
        value = self.micro if micro else self.macro
        if self.points is None:
            return value
        error = self.micro_standard_error if micro else self.macro_standard_error
        return SampledScore(value, error, len(self.points), self._labels.n_kept)

    def to_pandas(self) -> pandas.DataFrame:
        """One row for each point: cluster, nearest, a, b, silhouette; needs pandas."""
        import pandas

        return pandas.DataFrame(
            {
                "cluster": self.cluster,
                "nearest": self.nearest,
                "a": self.a,
                "b": self.b,
                "silhouette": self.samples,
            },
            index=pandas.Index(
                np.arange(self.n) if self.points is None else self.points, name="point"
            ),
        )

    def clusters_to_pandas(self) -> pandas.DataFrame:
        """One row for each cluster: size, mean, median, min, negative, standard_error."""
        import pandas

        clusters = self.clusters
        index = pandas.Index(clusters.labels, name="cluster")
        return pandas.DataFrame(clusters.columns(), index=index)

    def to_zarr(self, path: str | os.PathLike[str]) -> None:
        """Write the points' columns to a new Zarr group, a block of rows at a time.

        Arrays ``cluster`` and ``nearest`` (int32 codes, -1 for none), ``a``, ``b`` and
        ``silhouette`` (float64), and ``point`` where points are a sample; the attribute
        ``classes`` has the labels that codes stand for.

        Raises
        ------
        OutputExistsError
            ``path`` exists; it is left as it is.
        """
        write_table(path, self._blocks(), self._rows.shape[0], self._attributes())

    def _attributes(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "metric": self.metric,
            "classes": [_plain(label) for label in self._labels.classes],
            "micro": self.micro,
            "macro": self.macro,
        }

    def _blocks(self) -> Iterator[tuple[int, dict[str, Vector]]]:
        for a, b in ranges(self._rows.shape[0], BLOCK_ROWS):
            rows = self._rows.rows(a, b)
            columns = {
                "cluster": self._codes(a, b).astype(np.int32),
                "nearest": np.nan_to_num(rows[:, NEAREST], nan=-1.0).astype(np.int32),
                "a": rows[:, A],
                "b": rows[:, B],
                "silhouette": rows[:, S],
            }
            if self.points is not None:
                columns["point"] = self.points[a:b]
            yield a, columns

    def _column(self, column: int) -> Vector:
        m = self._rows.shape[0]
        values = np.empty(m)
        for a, b in ranges(m, BLOCK_ROWS):
            values[a:b] = self._rows.rows(a, b)[:, column]
        return values

    def _codes(self, start: int = 0, stop: int | None = None) -> Vector:
        codes = self._labels.codes
        if self.points is None:
            return codes[start:stop]
        return codes[self.points[start:stop]]

    def _named(self, codes: Vector) -> list[Any]:
        classes = [*self._labels.classes, None]  # the last is that of -1
        return [classes[code] for code in codes.tolist()]

    @property
    def _shares(self) -> Vector:
        """Each cluster's part of all points, or of their weights."""
        shares: Vector = self._totals / self._totals.sum()
        return shares

    def _groups(self) -> Iterator[tuple[int, int]]:
        """Ranges of clusters that have few enough points to be held together."""
        first, held = 0, 0
        for cluster, size in enumerate(self._labels.sizes.tolist()):
            if held + size > GROUP_POINTS and cluster > first:
                yield first, cluster
                first, held = cluster, 0
            held += size
        yield first, self.n_clusters

    def _summaries(self, first: int, last: int) -> Block:
        """Mean, median, minimum, share of negatives, standard error of clusters [first, last)."""
        codes, values, weights = self._of_clusters(first, last)
        order = np.lexsort((values, codes))
        codes, values = codes[order], values[order]
        weights = None if weights is None else weights[order]
        edges = np.searchsorted(codes, np.arange(first, last + 1))
        out = np.empty((5, last - first))
        for j in range(last - first):
            part = slice(edges[j], edges[j + 1])
            some = values[part]
            weight = np.ones(len(some)) if weights is None else weights[part]
            total = weight.sum()
            error = 0.0
            if self.points is not None:
                error = standard_error(some, int(self._labels.sizes[first + j]))
            out[:, j] = (
                some @ weight / total,
                _weighted_median(some, weight),
                some[0],
                weight[some < 0].sum() / total,
                error,
            )
        return out

    def _of_clusters(self, first: int, last: int) -> tuple[Vector, Vector, Vector | None]:
        codes, values, weights = [], [], []
        for a, b in ranges(self._rows.shape[0], BLOCK_ROWS):
            some = self._codes(a, b)
            inside = (some >= first) & (some < last)
            codes.append(some[inside])
            values.append(self._rows.rows(a, b)[inside, S])
            if self._sample_weight is not None:
                weights.append(self._sample_weight[a:b][inside])
        weight = np.concatenate(weights) if weights else None
        return np.concatenate(codes), np.concatenate(values), weight

    def __repr__(self) -> str:
        clusters = self.clusters
        looked_at = "" if self.points is None else f", from {len(self.points):,} of them"
        micro, macro = (
            self._shown(*pair)
            for pair in (
                (self.micro, self.micro_standard_error),
                (self.macro, self.macro_standard_error),
            )
        )
        lines = [
            f"Silhouettes of {self._labels.n_kept:,} points in {self.n_clusters:,} clusters "
            f"({self.metric} distance){looked_at}",
            f"  mean over points (micro)       {micro}",
            f"  mean of cluster means (macro)  {macro}",
            "  cluster        points     mean   median      min  negative",
        ]
        rows = [
            f"  {str(clusters.labels[j])[:12]:<12} {clusters.sizes[j]:>8,} "
            f"{clusters.means[j]:>8.3f} {clusters.medians[j]:>8.3f} "
            f"{clusters.minima[j]:>8.3f} {clusters.negative[j]:>9.1%}"
            for j in range(self.n_clusters)
        ]
        if len(rows) > MOST_SHOWN:
            left_out = f"  ... {len(rows) - MOST_SHOWN:,} more"
            rows = [*rows[: MOST_SHOWN // 2], left_out, *rows[-MOST_SHOWN // 2 :]]
        closing = "  negative: share of points that are nearer to another cluster"
        return "\n".join([*lines, *rows, closing])

    def _shown(self, value: float, error: float) -> str:
        return f"{value:.6f}" + ("" if self.points is None else f" (standard error {error:.6f})")


def checked_average(average: str) -> str:
    """One of AVERAGES.

    Raises
    ------
    InputError
    """
    if average not in AVERAGES:
        raise InputError(f"average must be 'micro' or 'macro'; got {average!r}.")
    return average


def _weighted_median(values: Vector, weights: Vector) -> float:
    """Of ascending values, each as often as its weight says."""
    reached = np.cumsum(weights)
    middle = reached[-1] / 2
    low = np.searchsorted(reached, middle, side="left")
    high = np.searchsorted(reached, middle, side="right")
    return float(values[low] + values[min(high, len(values) - 1)]) / 2


def _plain(label: Any) -> Any:
    """A label as JSON has it."""
    if isinstance(label, (str, int)) or (isinstance(label, float) and math.isfinite(label)):
        return label
    return str(label)
