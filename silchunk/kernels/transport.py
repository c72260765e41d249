"""Sums over rows behind the Lagrangian dual of placing points into clusters of given sizes.

Of row i, with a_ij = w_j u_ij - λ_j over the size classes j, the dual asks for the maximum, and its
smoothed form for ε·logsumexp(a_i / ε) and the softmax p_i = softmax(a_i / ε).
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

Block = np.ndarray[Any, np.dtype[np.float64]]

# exp(-40) < 2^-57 is lost when added to the 1 of the largest term: such classes get no mass.
NEGLIGIBLE = -40.0

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def dual_terms(
    table: Block,
    weights: Block,
    multipliers: Block,
    temperature: float,
    mass: Block,
    value: Block,
    overlap: Block,
) -> tuple[float, float]:
    """(Σ_i max_j a_ij, Σ_i ε·logsumexp_j(a_ij / ε)); at ε = 0 both are the former.

    Parameters
    ----------
    table : (r, J) float64, the u_ij
    weights, multipliers : (J,) float64, the w_j and λ_j
    temperature : ε ≥ 0; at 0, p_i is all on the first of the largest a_ij
    mass, value : (J,) float64, to which Σ_i p_ij and Σ_i p_ij w_j u_ij are added
    overlap : (J, J) float64, to whose entries j ≥ l Σ_i p_ij p_il is added
    """
    n_classes = table.shape[1]
    share = np.empty(n_classes)
    support = np.empty(n_classes, np.int64)
    hard = 0.0
    excess = 0.0  # of soft over hard: summed on its own, it keeps its digits at low temperatures
    for i in range(table.shape[0]):
        first = 0
        largest = -np.inf
        for j in range(n_classes):
            share[j] = weights[j] * table[i, j] - multipliers[j]
            if share[j] > largest:
                largest = share[j]
                first = j
        hard += largest
        if temperature == 0.0:
            mass[first] += 1.0
            value[first] += weights[first] * table[i, first]
            overlap[first, first] += 1.0
            continue
        total = 0.0
        count = 0  # of the classes in the support, whose shares move to the front
        for j in range(n_classes):
            exponent = (share[j] - largest) / temperature
            if exponent > NEGLIGIBLE:
                share[count] = math.exp(exponent)
                support[count] = j
                total += share[count]
                count += 1
        excess += math.log(total)
        for s in range(count):
            j = support[s]
            share[s] /= total
            mass[j] += share[s]
            value[j] += share[s] * weights[j] * table[i, j]
            for t in range(s + 1):
                overlap[j, support[t]] += share[s] * share[t]
    return hard, hard + temperature * excess
