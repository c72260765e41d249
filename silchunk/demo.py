"""The demonstration: real data that scikit-learn ships, clustered by k-means, against its bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silchunk.bounds import silhouette_bounds
from silchunk.rounding import at_most

# Name, what a row is, and the number of classes its authors distinguish.
DATA_SETS = (
    ("iris", "flowers", 3),
    ("wine", "wines", 3),
    ("breast_cancer", "tumours", 2),
    ("digits", "handwritten digits", 10),
)


@dataclass(frozen=True)
class Row:
    """One data set, clustered and judged."""

    name: str
    what: str
    n: int
    n_features: int
    n_clusters: int
    smallest_cluster: int
    asw: float
    upper_bound: float
    upper_bound_smallest: float
    wcre: float


def run() -> list[Row]:
    """Standardise, cluster and bound each data set."""
    from sklearn import datasets
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score
    from sklearn.preprocessing import StandardScaler

    rows = []
    for name, what, n_clusters in DATA_SETS:
        points = StandardScaler().fit_transform(getattr(datasets, f"load_{name}")().data)
        labels = KMeans(n_clusters, n_init=10, random_state=0).fit_predict(points)
        asw = float(silhouette_score(points, labels))
        smallest = int(np.bincount(labels).min())
        bounds = silhouette_bounds(points)
        rows.append(
            Row(
                name=name,
                what=what,
                n=points.shape[0],
                n_features=points.shape[1],
                n_clusters=n_clusters,
                smallest_cluster=smallest,
                asw=asw,
                upper_bound=bounds.asw,
                upper_bound_smallest=bounds.at(smallest),
                wcre=bounds.wcre(asw, smallest),
            )
        )
    return rows


def show(rows: list[Row]) -> None:
    """Print the rows as a table, and say in words what they mean."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="How good is a k-means clustering of real data, at best?")
    for heading in ("data", "points", "clusters"):
        table.add_column(heading, no_wrap=True)
    for heading in ("silhouette", "at most", "at most*", "reached*"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            f"{row.n:,} x {row.n_features}",
            f"{row.n_clusters} (>= {row.smallest_cluster})",
            f"{row.asw:.3f}",
            at_most(row.upper_bound, 3),
            at_most(row.upper_bound_smallest, 3),
            f"{100 * (1 - row.wcre):.0f}%",
        )
    # A pipe or a log has no width of its own; wide enough is better than wrapped.
    console = Console(width=None if Console().is_terminal else 100)
    console.print(table)
    console.print(
        "* with no cluster smaller than the smallest one found; features have variance 1\n",
        highlight=False,
    )
    best = max(rows, key=lambda row: 1 - row.wcre)
    bound, bound_smallest = at_most(best.upper_bound, 3), at_most(best.upper_bound_smallest, 3)
    console.print(
        f"The silhouette runs from -1 to 1, but no data set allows all of it. On {best.name}, "
        f"k-means with {best.n_clusters} clusters scores {best.asw:.3f}. That looks middling until "
        f"one knows that no clustering of these {best.n:,} {best.what} whatsoever scores above "
        f"{bound}, and none whose clusters all have {best.smallest_cluster} or more "
        f"scores above {bound_smallest}: k-means reached "
        f"{100 * (1 - best.wcre):.0f}% of what is possible at most.",
        highlight=False,
    )
    console.print(
        "\nYour own data: silchunk bound points.npy    What it would take: silchunk estimate "
        "points.npy",
        highlight=False,
    )
