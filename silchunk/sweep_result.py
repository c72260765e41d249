"""What a sweep over numbers of clusters gives back, as a table and in words."""

from __future__ import annotations

import html
import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from silchunk.bound_result import worst_case_error
from silchunk.pages import check_installed, extra, render, svg, write_new
from silchunk.plots import plot_sweep
from silchunk.report import LIBRARIES
from silchunk.rounding import at_most

if TYPE_CHECKING:
    import pandas

Vector = np.ndarray[Any, np.dtype[Any]]

# What recommends a K, and how to call it. Of all but Davies-Bouldin the largest is the best.
CRITERIA = {
    "micro": "micro silhouette",
    "macro": "macro silhouette",
    "davies_bouldin": "Davies-Bouldin",
    "calinski_harabasz": "Calinski-Harabasz",
    "share_of_bound": "share of the bound",
}
LOWER_IS_BETTER = ("davies_bouldin",)
WIDTH = 98  # characters
WIDTH_INCHES, HEIGHT_INCHES = 5.2, 4.6
LEGEND = (
    "Means are of silhouettes: over points (micro), and of the clusters' means (macro). At most: "
    "no clustering into K clusters, or with no cluster smaller, or with clusters of these sizes, "
    "has a larger mean over points; reached: share of the last of these. Davies-Bouldin: lower is "
    "better. Calinski-Harabasz: higher is better. *: the best of its column."
)
NO_INDEX_DECIDES = (
    "No index decides the number of clusters by itself: all of them reward compact clusters that "
    "are far apart, and differ in which they see first. Look at the clusterings near the best ones "
    "and keep the one that means something for your data."
)


class SweepRow(NamedTuple):
    """One number of clusters. What could not be computed is None, and ``reason`` says why.

    Attributes
    ----------
    n_clusters : int
        K, as asked for.
    n_clusters_found : int or None
        How many there were, None if the fit failed.
    smallest : int or None
        Points of the smallest cluster.
    micro, macro : float or None
        Mean silhouette over points; mean of the clusters' means.
    davies_bouldin, calinski_harabasz : float or None
        None for a distance matrix too.
    upper_bound_n_clusters : float or None
        Of ``micro``, over clusterings into K clusters.
    upper_bound_min_size : float or None
        Over clusterings with no cluster smaller than ``smallest``.
    assignment_bound : float or None
        Over clusterings with clusters of just these sizes.
    wcre : float or None
        Worst-case relative error of ``micro`` against ``assignment_bound``.
    reason : str or None
        Why this K is not recommended whatever its figures.
    """

    n_clusters: int
    n_clusters_found: int | None = None
    smallest: int | None = None
    micro: float | None = None
    macro: float | None = None
    davies_bouldin: float | None = None
    calinski_harabasz: float | None = None
    upper_bound_n_clusters: float | None = None
    upper_bound_min_size: float | None = None
    assignment_bound: float | None = None
    wcre: float | None = None
    reason: str | None = None

    @property
    def wcre_n_clusters(self) -> float | None:
        """Worst-case relative error against ``upper_bound_n_clusters``; None where another number
        of clusters was found, of which that is no bound."""
        if self.n_clusters_found != self.n_clusters:
            return None
        return wcre_of(self.micro, self.upper_bound_n_clusters)

    @property
    def wcre_min_size(self) -> float | None:
        """Worst-case relative error against ``upper_bound_min_size``."""
        return wcre_of(self.micro, self.upper_bound_min_size)

    @property
    def share_of_bound(self) -> float | None:
        """Share of ``assignment_bound`` that ``micro`` reaches: 1 - wcre."""
        return None if self.wcre is None else 1.0 - self.wcre

    def facts(self) -> dict[str, Any]:
        """All figures by name."""
        return {
            **self._asdict(),
            "wcre_n_clusters": self.wcre_n_clusters,
            "wcre_min_size": self.wcre_min_size,
        }


def wcre_of(micro: float | None, bound: float | None) -> float | None:
    """Worst-case relative error, where both are known."""
    if micro is None or bound is None:
        return None
    return worst_case_error(micro, bound, f"bound {bound:.6g}.")


@dataclass(frozen=True, repr=False, eq=False)
class Sweep:
    """Clusterings into several numbers of clusters, and how good they are. Printing it gives a
    table to read.

    Attributes
    ----------
    n : int
        Number of points.
    metric : str
        That silhouettes and bounds are measured in.
    estimator : str
        What found the clusters.
    rows : list of SweepRow
        One for each K, ascending.
    labels : dict
        K to (n,) int32, for each K that labels were found for.
    """

    n: int
    metric: str
    estimator: str
    rows: list[SweepRow]
    labels: Mapping[int, Vector] = field(compare=False)

    @property
    def recommended(self) -> dict[str, int]:
        """The K that each criterion prefers, the smallest of equals; without criteria that have no
        figures, and without K that have a ``reason``."""
        found = {}
        for criterion in CRITERIA:
            values = [
                (getattr(row, criterion), row.n_clusters)
                for row in self.rows
                if row.reason is None and getattr(row, criterion) is not None
            ]
            if values:
                sign = 1 if criterion in LOWER_IS_BETTER else -1
                found[criterion] = min(values, key=lambda one: (sign * one[0], one[1]))[1]
        return found

    @property
    def agreed(self) -> bool:
        """Whether all criteria prefer the same K."""
        return len(set(self.recommended.values())) == 1

    @property
    def verdict(self) -> str:
        """What the criteria prefer, and what that is worth, in sentences."""
        return f"{self.preferred} {NO_INDEX_DECIDES}" if self.recommended else self.preferred

    @property
    def preferred(self) -> str:
        """What the criteria prefer, in sentences."""
        recommended = self.recommended
        if not recommended:
            return "No K gave a clustering that can be scored; each row says why."
        by_count: dict[int, list[str]] = {}
        for criterion, K in recommended.items():
            by_count.setdefault(K, []).append(CRITERIA[criterion])
        if self.agreed:
            said = f"All {len(recommended)} criteria prefer K = {next(iter(by_count)):,}."
        else:
            said = "The criteria disagree: " + "; ".join(
                f"K = {K:,} by {_listed(names)}" for K, names in sorted(by_count.items())
            )
            said += "."
        largest = self.rows[-1].n_clusters
        if largest in by_count and len(self.rows) > 1:
            said += (
                f" K = {largest:,} is the largest that was looked at: a larger one may be better "
                "yet."
            )
        return said

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each K, with all figures; needs pandas."""
        import pandas

        return pandas.DataFrame([row.facts() for row in self.rows]).set_index("n_clusters")

    def facts(self) -> dict[str, Any]:
        """Numbers for programs."""
        return {
            "n": self.n,
            "metric": self.metric,
            "estimator": self.estimator,
            "rows": [row.facts() for row in self.rows],
            "recommended": self.recommended,
            "agreed": self.agreed,
        }

    def to_html(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        source: str = "",
        command: str = "",
    ) -> str:
        """A page with the table, what it means, and a figure, that needs no other file.

        Parameters
        ----------
        path : path, optional
            New file to write it to as well.
        source, command : str
            What was clustered and how to repeat it, for the page to say.

        Raises
        ------
        OutputExistsError
            There is something at ``path``; it is left as it is.
        MissingExtraError
            The packages for pictures are not installed.
        """
        check_installed()
        figure = extra("matplotlib.figure").Figure(
            figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained"
        )
        plot_sweep(self, figure.add_subplot())
        page = render(
            "sweep.html",
            head=self._head(),
            preferred=self.preferred,
            advice=NO_INDEX_DECIDES,
            doubtful=not self.agreed,
            names=COLUMNS,
            legend=LEGEND,
            lines=[
                (cells, reason, row.n_clusters in self.recommended.values())
                for row, (cells, reason) in zip(self.rows, self._cells(), strict=True)
            ],
            figure=svg(figure, "Silhouettes and their bounds against the number of clusters"),
            source=source,
            command=command,
            versions=", ".join(f"{name} {version(name)}" for name in LIBRARIES),
        )
        if path is not None:
            write_new(path, page)
        return page

    def _head(self) -> str:
        counts = [row.n_clusters for row in self.rows]
        span = ", ".join(f"{K:,}" for K in counts)
        if len(counts) > 2 and counts == list(range(counts[0], counts[-1] + 1)):
            span = f"{counts[0]:,} to {counts[-1]:,}"
        return (
            f"{self.n:,} points in K = {span} clusters by {self.estimator} ({self.metric} distance)"
        )

    def _cells(self) -> list[tuple[list[str], str]]:
        """The cells of each row, the best marked with a star, and the reason."""
        best = self.recommended
        lines = []
        for row in self.rows:

            def cell(name: str, text: str, row: SweepRow = row) -> str:
                if getattr(row, name) is None:
                    return "-"
                return f"{text}*" if best.get(name) == row.n_clusters else text

            share = row.share_of_bound or 0.0
            cells = [
                f"{row.n_clusters:,}",
                cell("smallest", f"{row.smallest or 0:,}"),
                cell("micro", f"{row.micro or 0.0:.3f}"),
                cell("macro", f"{row.macro or 0.0:.3f}"),
                cell("upper_bound_n_clusters", at_most(row.upper_bound_n_clusters or 0.0, 3)),
                cell("upper_bound_min_size", at_most(row.upper_bound_min_size or 0.0, 3)),
                cell("assignment_bound", at_most(row.assignment_bound or 0.0, 3)),
                cell("share_of_bound", f"{max(0, int(100 * share))}%"),
                cell("davies_bouldin", f"{row.davies_bouldin or 0.0:.4g}"),
                cell("calinski_harabasz", f"{row.calinski_harabasz or 0.0:.4g}"),
            ]
            lines.append((cells, row.reason or ""))
        return lines

    def __str__(self) -> str:
        lines = [self._head(), ""]
        lines += [_line([above for above, _, _ in HEADER]), _line([name for _, name, _ in HEADER])]
        for cells, reason in self._cells():
            lines.append(_line(cells))
            if reason:
                lines += textwrap.wrap(
                    reason, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
                )
        lines += [
            "",
            textwrap.fill(LEGEND, WIDTH),
            "",
            textwrap.fill(self.verdict, WIDTH),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        names = "".join(f"<th>{html.escape(name)}</th>" for name in (*COLUMNS, ""))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in (*cells, reason)) + "</tr>"
            for cells, reason in self._cells()
        )
        return (
            f"<p>{html.escape(self._head())}</p>"
            f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>{html.escape(self.verdict)}</p>"
        )


# Names of the columns of a table, in two lines, and their widths in characters.
HEADER = (
    ("", "K", 5),
    ("smallest", "cluster", 10),
    ("mean over", "points", 11),
    ("mean of", "clusters", 10),
    ("at most, in", "K clusters", 13),
    ("none", "smaller", 9),
    ("these", "sizes", 8),
    ("", "reached", 9),
    ("Davies-", "Bouldin", 9),
    ("Calinski-", "Harabasz", 10),
)

# The same, each in one line.
COLUMNS = (
    "K",
    "smallest cluster",
    "mean over points",
    "mean of clusters",
    "at most, in K clusters",
    "at most, none smaller",
    "at most, these sizes",
    "reached",
    "Davies-Bouldin",
    "Calinski-Harabasz",
)


def _line(cells: list[str]) -> str:
    """Cells to the right of their columns, with room for a star behind each."""
    text = "".join(
        f"{cell:>{width}}" if cell.endswith("*") else f"{cell:>{width - 1}} "
        for cell, (_, _, width) in zip(cells, HEADER, strict=True)
    )
    return text.rstrip()


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
