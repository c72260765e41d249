"""K-Sil as one would write it on a blackboard: all distances at once, every rule a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Iterations without a better objective after which K-Sil ends.
PATIENCE = 10
# Objectives closer than this, relative, count as equal.
ROUNDING = 1e-12


class Found(NamedTuple):
    """What a look at all points with some centres tells."""

    labels: np.ndarray  # (n,)
    s: np.ndarray  # (n,), 1 - a/b
    nearest: np.ndarray  # (n,), distances
    macro: float
    micro: float
    inertia: float
    empty: list


@dataclass
class Fit:
    """Centres (K, d) and labels (n,), and the rows of history as tuples, of which the first
    ``n_sure`` do not depend on rounding."""

    centres: np.ndarray
    labels: np.ndarray
    objective: float
    inertia: float
    history: list
    n_sure: int


def distances(X, centres):
    """(n, K), by differences."""
    return np.sqrt(((X[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2))


def directions(X):
    """Rows divided by their norms."""
    return X / np.sqrt((X**2).sum(axis=1, keepdims=True))


def look(X, centres, counts, squared=False, least=1):
    """Nearest centres, of equals the first, and the scores."""
    D = distances(X, centres)
    labels = D.argmin(axis=1)
    a = D.min(axis=1)
    s = np.zeros(len(X))
    if len(centres) > 1:
        b = np.sort(D, axis=1)[:, 1]
        some = b > 0
        s[some] = 1 - ((a[some] / b[some]) ** 2 if squared else a[some] / b[some])
    means, empty = [], []
    for cluster in range(len(centres)):
        own = (labels == cluster) & (counts > 0)
        if own.any():
            means.append((counts[own] * s[own]).sum() / counts[own].sum())
        if own.sum() < least:
            empty.append(cluster)
    micro = (counts * s).sum() / counts.sum()
    return Found(labels, s, a, np.mean(means), micro, (counts * a**2).sum(), empty)


def moved(X, centres, counts, found, temperature, spherical=False, least=1):
    """Weighted means; empty clusters at the farthest points, which leave their own."""
    weights = counts * np.exp(temperature * found.s)
    staying = counts > 0
    members = [(staying & (found.labels == cluster)).sum() for cluster in range(len(centres))]
    farthest = sorted(np.flatnonzero(staying), key=lambda row: (-found.nearest[row], row))
    places = list(found.empty)
    taken = {}
    for row in farthest[: len(centres)]:
        if places and members[found.labels[row]] > least and found.nearest[row] > 0:
            taken[places.pop(0)] = X[row]
            members[found.labels[row]] -= 1
            staying[row] = False
    new = centres.copy()
    for cluster in range(len(centres)):
        own = staying & (found.labels == cluster)
        if cluster in taken:
            new[cluster] = taken[cluster]
        elif own.any():
            new[cluster] = (weights[own, None] * X[own]).sum(axis=0) / weights[own].sum()
    if spherical:
        # Directions that cancel have no mean, so the centre stays.
        cancel = np.sqrt((new**2).sum(axis=1)) <= 1e-12
        new[cancel] = centres[cancel]
        new = directions(new)
    return new


def above(rank, other):
    """Whether centres are better: fewer empty clusters, or as many and a larger objective."""
    if rank[0] != other[0]:
        return rank[0] > other[0]
    return rank[1] > other[1] + ROUNDING * abs(other[1])


def ksil(X, centres, *, margin=None, **options):
    """From given centres to the end; k-means unless that is better by so many standard errors."""
    found = ksil_alone(X, centres, **options)
    if margin is None:
        return found
    asked = ("sample_weight", "max_iter", "tol", "spherical", "objective")
    plain, error = kmeans(X, centres, **{name: options[name] for name in asked if name in options})
    return found if found.objective > plain.objective + margin * error else plain


def kmeans(
    X, centres, *, sample_weight=None, objective="macro", max_iter=100, tol=1e-4, spherical=False
):
    """k-means from given centres, none of which lose their points, and the standard error of its
    objective."""
    X, centres = np.asarray(X, float), np.array(centres, float)
    if spherical:
        X, centres = directions(X), directions(centres)
    counts = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, float)
    tolerance = tol * X.var(axis=0).mean()
    history, labels = [], None
    for iteration in range(1, max_iter + 1):
        found = look(X, centres, counts, spherical)
        assert not found.empty
        new = moved(X, centres, counts, found, 0.0, spherical)
        shift = ((new - centres) ** 2).sum()
        changed = len(X) if labels is None else int((found.labels != labels).sum())
        centres, labels = new, found.labels
        history.append(
            (iteration, found.macro, found.micro, found.inertia, 0.0, shift**0.5, changed, 0)
        )
        if changed == 0 or shift <= tolerance:
            break
    last = look(X, centres, counts, spherical)
    score = getattr(last, objective)
    found = Fit(centres, last.labels, score, last.inertia, history, len(history))
    return found, standard_error(last, counts, objective)


def standard_error(found, counts, objective):
    """Of the macro or micro mean of s."""
    groups = [np.arange(len(found.s))]
    if objective == "macro":
        groups = [np.flatnonzero(found.labels == cluster) for cluster in np.unique(found.labels)]
    variances = []
    for own in groups:
        mean = np.average(found.s[own], weights=counts[own])
        spread = np.average((found.s[own] - mean) ** 2, weights=counts[own])
        variances.append(spread / counts[own].sum())
    return np.sqrt(np.sum(variances)) / len(groups)


def ksil_alone(
    X,
    centres,
    *,
    sample_weight=None,
    objective="macro",
    temperature=1.0,
    temperature_range=(0.5, 8.0),
    temperature_step=1.5,
    max_iter=100,
    tol=1e-4,
    spherical=False,
    min_cluster_size=1,
):
    """From given centres to the end."""
    X, centres = np.asarray(X, float), np.array(centres, float)
    if spherical:
        X, centres = directions(X), directions(centres)
    counts = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, float)
    tolerance = tol * X.var(axis=0).mean()
    best, best_rank, best_iteration = centres, None, 0
    history, scores, seen = [], [], []
    n_sure = max_iter
    while True:
        found = look(X, centres, counts, spherical, min_cluster_size)
        score = getattr(found, objective)
        new = moved(X, centres, counts, found, temperature, spherical, min_cluster_size)
        shift = ((new - centres) ** 2).sum()
        changed = len(X) if not seen else int((found.labels != seen[-1]).sum())
        history.append(
            (
                len(history) + 1,
                found.macro,
                found.micro,
                found.inertia,
                temperature,
                shift**0.5,
                changed,
                len(found.empty),
            )
        )
        rank = -len(found.empty), score
        if best_rank is None or above(rank, best_rank):
            best, best_rank, best_iteration = centres, rank, len(history)
        if scores and len(centres) > 1:  # of one centre they are all 0
            gains = [abs(score - other[1]) / ROUNDING for other in (scores[-1], best_rank)]
            if any(0.1 < gain < 10 for gain in gains):  # how it goes on depends on rounding
                n_sure = min(n_sure, len(history))
        better = not scores or above(rank, scores[-1])
        scores.append(rank)
        if temperature:
            moved_to = temperature * temperature_step if better else temperature / temperature_step
            temperature = min(max(moved_to, temperature_range[0]), temperature_range[1])
        centres = new
        stable = len(seen) > 0 and changed == 0 and not found.empty
        known = any((labels == found.labels).all() for labels in seen)
        seen.append(found.labels)
        if len(history) >= max_iter:
            break
        if stable and shift <= tolerance:
            break
        if known and not stable:
            break
        if len(scores) - best_iteration >= PATIENCE:
            break
    # Where the last iteration has led has not been looked at yet.
    last = look(X, centres, counts, spherical, min_cluster_size)
    if not above(best_rank, (-len(last.empty), getattr(last, objective))):
        best = centres
    found = look(X, best, counts, spherical, min_cluster_size)
    return Fit(
        best,
        found.labels,
        getattr(found, objective),
        found.inertia,
        history,
        min(n_sure, len(history)),
    )
