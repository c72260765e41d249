"""Sums of Manhattan distances to clusters, one feature after the other, along sorted coordinates.

Of one feature and one cluster, let x_j be the coordinates, w_j the weights (1 where none are
given), W their sum and m their median. For a point at x with the weight L of the cluster to its
left and R to its right, the sum of distances is

    Σ w_j |x - x_j| = (x - m) (L - R) + (Σ_right w_j (x_j - m) - Σ_left w_j (x_j - m)).

Both factors change only where a point of the cluster is passed, so one pass over the sorted
coordinates finds the sums of all points.

Nothing cancels, however far the points lie from the origin or from each other: the median makes
Σ w_j |x_j - m| ≤ Σ w_j |x - x_j| for every x, hence W |x - m| is at most twice that, too. Over d
features a sum is off by less than (2 N + d + 8) u of itself, with weights (6 N + d + 8) u,
u = 2⁻⁵³ and N the number of points in the cluster; far less than that as a rule.
"""

from __future__ import annotations

import numpy as np

from silchunk.kernels.bound import Block, compiled

# Clusters whose sums grow in one pass: a vector register of float64, and half a cache line.
GROUP = 4


@compiled  # type: ignore[untyped-decorator]
def find_medians(
    values: Block,
    order: Block,
    codes: Block,
    weights: Block | None,
    sizes: Block,
    medians: Block,
    totals: Block,
) -> None:
    """Median of each cluster, and what its points are off by.

    Parameters
    ----------
    values : (m,) float32 or float64, ascending
    order : (m,) integers, the point that each value is of
    codes : (n,) integers, cluster of each point; those in ``order`` have one
    weights : (n,) float64, or None
    sizes : (K,) float64, number of points of each cluster, or sum of their weights
    medians : (K,) float64, filled with the lower (weighted) medians
    totals : (K,) float64, filled with Σ w (x - median)
    """
    passed = np.zeros(len(sizes))
    found = np.zeros(len(sizes), np.bool_)
    for t in range(len(order)):
        i = order[t]
        c = codes[i]
        passed[c] += 1.0 if weights is None else weights[i]
        if not found[c] and 2.0 * passed[c] >= sizes[c]:
            found[c] = True
            medians[c] = values[t]
    totals[:] = 0.0
    for t in range(len(order)):
        i = order[t]
        c = codes[i]
        weight = 1.0 if weights is None else weights[i]
        totals[c] += weight * (np.float64(values[t]) - medians[c])


@compiled  # type: ignore[untyped-decorator]
def add_feature(
    values: Block,
    order: Block,
    codes: Block,
    weights: Block | None,
    sizes: Block,
    medians: Block,
    totals: Block,
    first: int,
    sums: Block,
) -> None:
    """Add the distances in one feature to the clusters from ``first`` on, GROUP of them or fewer.

    Parameters
    ----------
    values, order, codes, weights, sizes, medians, totals
        As `find_medians` takes and leaves them.
    first : int
    sums : (n, GROUP) float64, added to
    """
    slopes, offsets = -_of_group(sizes, first), _of_group(totals, first)
    centres = _of_group(medians, first)
    # Which sum a point changes is looked up: a branch would be mispredicted all the time.
    changes = np.zeros((len(sizes), GROUP))
    for c in range(first, min(first + GROUP, len(sizes))):
        changes[c, c - first] = 2.0
    for t in range(len(order)):
        i = order[t]
        x = np.float64(values[t])
        weight = 1.0 if weights is None else weights[i]
        change, row = changes[codes[i]], sums[i]
        for c in range(GROUP):
            off = x - centres[c]
            passed = weight * change[c]
            slopes[c] += passed
            offsets[c] -= passed * off
            row[c] += off * slopes[c] + offsets[c]


@compiled  # type: ignore[untyped-decorator]
def _of_group(values: Block, first: int) -> Block:
    """A copy of GROUP values from ``first`` on, with zeros beyond the last."""
    group = np.zeros(GROUP)
    for c in range(min(GROUP, len(values) - first)):
        group[c] = values[first + c]
    return group
