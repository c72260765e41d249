"""K-Sil against k-means from the same start, on real data sets.

python benchmarks/clusterings.py               # K-Sil and its family against k-means
python benchmarks/clusterings.py --schedules   # temperatures, and margins over k-means
python benchmarks/clusterings.py --robustness  # with outliers, and with a wrong K; --alone: K-Sil
                                               # that is not held against k-means

Ten seeds, starts by k-means++ and at random, K the number of classes. Figures are means over runs;
shares count how often a clustering is at least as good as that of k-means, to 1e-9. Silhouettes are
exact up to 10,000 points, else of a stratified sample of 4,000. Outliers are uniform in a box twice
as wide as the data; agreement with the classes is that of the other points. What to install is in
data_sets.py.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from data_sets import load
from sklearn.exceptions import ConvergenceWarning

import silchunk
from silchunk.cluster.fitting import points_of
from silchunk.cluster.kmeans import KMeans
from silchunk.cluster.ksil import KSil
from silchunk.cluster.seeding import initial_centres
from silchunk.cluster.weighted import ILOFKMeans, LOFKMeans, OWKMeans
from silchunk.prepare import Arguments

SEEDS = 10
INITS = ("k-means++", "random")
EXACT_UP_TO = 10_000
SAMPLE = 4_000

# name: (first temperature, range, step, margin over k-means in standard errors)
SCHEDULES = {
    "constant 1": (1.0, (1.0, 1.0), 1.0, None),
    "constant 2": (2.0, (2.0, 2.0), 1.0, None),
    "1, 0.7-1.4, x1.1": (1.0, (0.7, 1.4), 1.1, None),
    "0.5, 0.25-1.5, x1.25": (0.5, (0.25, 1.5), 1.25, None),
    "0.1, 0.1-4, x1.1": (0.1, (0.1, 4.0), 1.1, None),
    "1, 0.1-4, x1.1": (1.0, (0.1, 4.0), 1.1, None),
    "1, 0.25-4, x1.5": (1.0, (0.25, 4.0), 1.5, None),
    "1, 0.5-8, x2": (1.0, (0.5, 8.0), 2.0, None),
    "8, 0.5-16, x1.5": (8.0, (0.5, 16.0), 1.5, None),
    "1, 0.7-1.4, x1.1, 0 errors": (1.0, (0.7, 1.4), 1.1, 0.0),
    "1, 0.7-1.4, x1.1, 2 errors": (1.0, (0.7, 1.4), 1.1, 2.0),
    "1, 0.7-1.4, x1.1, 2.5 errors": (1.0, (0.7, 1.4), 1.1, 2.5),
    "1, 0.7-1.4, x1.1, 4 errors": (1.0, (0.7, 1.4), 1.1, 4.0),
    "2, 1.4-2.8, x1.1, 4 errors": (2.0, (1.4, 2.8), 1.1, 4.0),
    "1, 0.1-4, x1.1, 2.5 errors": (1.0, (0.1, 4.0), 1.1, 2.5),
}
# Shares of outliers, and how far K is off.
OUTLIERS = (0.05, 0.1, 0.2)
OFF = (-3, -2, -1, 1, 2, 3)
FAMILY = (KMeans, KSil, LOFKMeans, ILOFKMeans, OWKMeans)
QUADRATIC = (LOFKMeans, ILOFKMeans)
LARGER_IS_BETTER = {"macro": 1, "micro": 1, "DBI": -1, "NMI": 1, "ARI": 1, "ACC": 1}


class Scores(NamedTuple):
    """Of one clustering."""

    macro: float
    micro: float
    DBI: float
    NMI: float
    ARI: float
    ACC: float


def start(X, n_clusters, init, seed):
    """First centres, as an estimator with this init and seed would draw them."""
    arguments = Arguments(progress=False)
    with points_of(X, arguments, n_clusters, init=init) as (job, points):
        return initial_centres(job, points, n_clusters, init, np.random.default_rng(seed))


def scores(X, y, labels, kept=slice(None)) -> Scores:
    """Scores of a clustering; agreement with the classes over the points that are ``kept``."""
    if len(np.unique(labels)) < 2:
        return Scores(-1.0, -1.0, np.inf, 0.0, 0.0, 0.0)
    sample = {"sample_size": SAMPLE, "random_state": 0} if len(X) > EXACT_UP_TO else {}
    table = silchunk.silhouette_table(X, labels, progress=False, **sample)
    agreement = silchunk.compare_labels(y[kept], labels[kept])
    dbi = silchunk.davies_bouldin_score(X, labels, progress=False)
    return Scores(table.macro, table.micro, dbi, agreement.nmi, agreement.ari, agreement.accuracy)


def better_share(ours: list[Scores], theirs: list[Scores]) -> dict[str, float]:
    """How often ours is at least as good."""
    return {
        name: float(
            np.mean(
                [
                    sign * (getattr(a, name) - getattr(b, name)) >= -1e-9
                    for a, b in zip(ours, theirs, strict=True)
                ]
            )
        )
        for name, sign in LARGER_IS_BETTER.items()
    }


def print_row(name: str, values) -> None:
    print(f"{name:<34}" + "".join(f"{value:>8.3f}" for value in values), flush=True)


def print_share(name: str, share: dict[str, float]) -> None:
    print(f"{name:<34}" + "".join(f"{value:>8.0%}" for value in share.values()), flush=True)


def header(title: str) -> None:
    print(f"\n{title:<34}" + "".join(f"{name:>8}" for name in LARGER_IS_BETTER))


def runs_of(X, n_clusters, seeds):
    """(init, seed, first centres) of all runs."""
    for init in INITS:
        for seed in range(seeds):
            yield init, seed, start(X, n_clusters, init, seed)


def schedules(data, seeds: int) -> list[dict]:
    """Every schedule on every data set."""
    rows = []
    pooled: dict[str, tuple[list[Scores], list[Scores]]] = {name: ([], []) for name in SCHEDULES}
    for name, (X, y, n_clusters) in data.items():
        plain, ours = [], {schedule: [] for schedule in SCHEDULES}
        for _, _, centres in runs_of(X, n_clusters, seeds):
            found = KMeans(n_clusters, init=centres, progress=False).fit(X)
            plain.append(scores(X, y, found.labels_))
            for schedule, (first, limits, step, margin) in SCHEDULES.items():
                model = KSil(
                    n_clusters,
                    init=centres,
                    temperature=first,
                    temperature_range=limits,
                    temperature_step=step,
                    margin=margin,
                    progress=False,
                )
                ours[schedule].append(scores(X, y, model.fit(X).labels_))
        header(f"{name}: K-Sil / k-means, means")
        print_row("k-means", np.mean(plain, axis=0))
        for schedule, found in ours.items():
            print_row(schedule, np.mean(found, axis=0))
            rows.append(
                {
                    "data": name,
                    "schedule": schedule,
                    "means": np.mean(found, axis=0).tolist(),
                    "kmeans": np.mean(plain, axis=0).tolist(),
                    "at_least_as_good": better_share(found, plain),
                }
            )
            pooled[schedule][0].extend(found)
            pooled[schedule][1].extend(plain)
    header("all: share of runs at least as good")
    for schedule, (found, plain) in pooled.items():
        print_share(schedule, better_share(found, plain))
    print(
        "\nmean gain in macro silhouette over k-means; on how many data sets it is best (to 0.002)"
    )
    for schedule, (found, plain) in pooled.items():
        gain = np.mean([a.macro - b.macro for a, b in zip(found, plain, strict=True)])
        wins = 0
        for name in data:
            of = {r["schedule"]: r["means"][0] for r in rows if r["data"] == name}
            wins += of[schedule] >= max(of.values()) - 0.002
        print(f"{schedule:<34}{gain:>8.4f}{wins:>8}")
    return rows


def disturbed(X, y, share, replace, rng):
    """Points with outliers, and which of them are still of the classes."""
    n = len(X)
    count = int(share * n)
    middle, half = (X.max(axis=0) + X.min(axis=0)) / 2, (X.max(axis=0) - X.min(axis=0)) / 2
    strange = middle + 2 * half * rng.uniform(-1, 1, (count, X.shape[1]))
    if not replace:
        return np.vstack([X, strange]), np.r_[y, np.zeros(count, y.dtype)], np.arange(n)
    places = rng.choice(n, count, replace=False)
    X = X.copy()
    X[places] = strange
    return X, y, np.setdiff1d(np.arange(n), places)


def drops(X, y, n_clusters, seeds, alone):
    """(kind, drop of ARI and NMI by k-means, by K-Sil) of every disturbance and run."""

    def k_sil(n_clusters, **options):
        return KSil(n_clusters, **options, **({"margin": None} if alone else {}))

    def agreement(model, centres, X, y, kept):
        labels = model(len(centres), init=centres, progress=False).fit(X).labels_
        found = silchunk.compare_labels(y[kept], labels[kept])
        return np.array([found.ari, found.nmi])

    everything = np.arange(len(X))
    for init, seed, centres in runs_of(X, n_clusters, seeds):
        clean = [agreement(model, centres, X, y, everything) for model in (KMeans, k_sil)]
        rng = np.random.default_rng(seed)
        cases = []
        for share in OUTLIERS:
            for replace in (True, False):
                kind = f"{share:.0%} {'replaced' if replace else 'joined'} by outliers"
                Z, classes, kept = disturbed(X, y, share, replace, rng)
                cases.append((kind, Z, classes, kept, start(Z, n_clusters, init, seed)))
        for off in OFF:
            if n_clusters + off >= 2:
                other = start(X, n_clusters + off, init, seed)
                cases.append((f"K off by {off:+}", X, y, everything, other))
        for kind, Z, classes, kept, first in cases:
            found = [agreement(model, first, Z, classes, kept) for model in (KMeans, k_sil)]
            yield kind, clean[0] - found[0], clean[1] - found[1]


def robustness(data, seeds: int, alone: bool) -> list[dict]:
    """How often K-Sil loses no more agreement with the classes than k-means does."""
    rows = []
    for name, (X, y, n_clusters) in data.items():
        if len(X) > EXACT_UP_TO:
            continue
        for kind, plain, ours in drops(X, y, n_clusters, seeds, alone):
            rows.append(
                {"data": name, "kind": kind, "kmeans": plain.tolist(), "ksil": ours.tolist()}
            )
    titles = ("k-means: ARI", "NMI", "K-Sil: ARI", "NMI", "no worse: ARI", "NMI", "equal")
    print(f"\n{'mean drop of agreement':<34}" + "".join(f"{title:>15}" for title in titles))

    def show(label, some):
        plain, ours = (np.array([row[key] for row in some]) for key in ("kmeans", "ksil"))
        share = (ours <= plain + 1e-9).mean(axis=0)
        equal = (np.abs(ours - plain) <= 1e-9).all(axis=1).mean()
        print(
            f"{label:<34}"
            + "".join(f"{value:>15.3f}" for value in (*plain.mean(axis=0), *ours.mean(axis=0)))
            + "".join(f"{value:>15.0%}" for value in (*share, equal))
        )

    for key in ("kind", "data"):
        for label in dict.fromkeys(row[key] for row in rows):
            show(label, [row for row in rows if row[key] == label])
    show("all", rows)
    return rows


def family(data, seeds: int) -> list[dict]:
    """K-Sil and the weighted baselines against k-means."""
    rows = []
    for name, (X, y, n_clusters) in data.items():
        found: dict[str, list[Scores]] = {model.__name__: [] for model in FAMILY}
        for _, _, centres in runs_of(X, n_clusters, seeds):
            for model in FAMILY:
                if model in QUADRATIC and len(X) > EXACT_UP_TO:
                    continue
                labels = model(n_clusters, init=centres, progress=False).fit(X).labels_
                found[model.__name__].append(scores(X, y, labels))
        header(f"{name}: n = {len(X):,}, d = {X.shape[1]}, K = {n_clusters}")
        for model, of in found.items():
            if of:
                print_row(model, np.mean(of, axis=0))
        rows.append({"data": name, **found})
    header("share of runs at least as good as k-means")
    for model in FAMILY[1:]:
        plain = [s for row in rows if row[model.__name__] for s in row["KMeans"]]
        ours = [s for row in rows for s in row[model.__name__]]
        print_share(model.__name__, better_share(ours, plain))
        same = np.mean([a == b for a, b in zip(ours, plain, strict=True)])
        print(f"  of them with the very scores of k-means: {same:.0%} of all runs")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", action="store_true")
    parser.add_argument("--robustness", action="store_true")
    parser.add_argument("--alone", action="store_true", help="K-Sil with margin=None")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--data", nargs="*", help="names of data sets; all of them")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", silchunk.SilchunkWarning)
    data = load()
    if arguments.data:
        data = {name: data[name] for name in arguments.data}
    if arguments.schedules:
        result = schedules(data, arguments.seeds)
    elif arguments.robustness:
        result = robustness(data, arguments.seeds, arguments.alone)
    else:
        result = family(data, arguments.seeds)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))
