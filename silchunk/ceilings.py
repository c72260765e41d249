"""How a clustering's scores stand to their upper bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from silchunk.bound_result import BoundResult, family
from silchunk.sampling import SampledBound
from silchunk.silhouette_result import SilhouetteTable

SIZES = "clusters of these sizes"
# Minimum cluster sizes for which limits are taken from a sample: a curve that can be drawn.
CURVE_SIZES = 32


@dataclass(frozen=True)
class Ceiling:
    """An upper bound, and how a score stands to it.

    Attributes
    ----------
    whose : str
        The clusterings that it is over.
    bound : float
    wcre : float
        Worst-case relative error, (bound - score) / bound; 0 if the bound is 0.
    """

    whose: str
    bound: float
    wcre: float

    @property
    def reached(self) -> float:
        """Share of the bound that the score reaches, 1 - wcre: of the best possible, at least."""
        return 1.0 - self.wcre


class Ceilings(NamedTuple):
    """Those of an `Evaluation`, where they are explained."""

    any_clustering: Ceiling
    smallest_cluster: Ceiling
    these_sizes: Ceiling | None
    macro_these_sizes: Ceiling | None


def ceilings_of(
    bounds: BoundResult | SampledBound, table: SilhouetteTable, smallest: int
) -> Ceilings:
    """Over a clustering whose smallest cluster has so many points.

    Raises
    ------
    InputError
        A score is above its bound.
    """
    if isinstance(bounds, SampledBound):
        any_, within = (_estimated(bounds, table.micro, m) for m in (1, smallest))
        return Ceilings(any_, within, None, None)
    sized = bounds.sized
    assert sized is not None
    any_, within = (
        Ceiling(family(m, None), bounds.at(m), bounds.wcre(table.micro, m)) for m in (1, smallest)
    )
    return Ceilings(
        any_,
        within,
        Ceiling(SIZES, sized.asw, sized.wcre(table.micro)),
        Ceiling(SIZES, sized.macro, sized.macro_wcre(table.macro)),
    )


def _estimated(bounds: SampledBound, score: float, m: int) -> Ceiling:
    # An estimated score may be above the limit, under which the score itself is.
    limit = bounds.at(m)
    return Ceiling(family(m, None), limit, max(0.0, 1.0 - score / limit) if limit > 0 else 0.0)


def curve_sizes(n: int, smallest: int) -> list[int]:
    """Minimum cluster sizes from 1 to n / 2, the smallest one here among them."""
    spread = np.geomspace(1, n // 2, CURVE_SIZES).round().astype(int)
    return sorted({1, smallest, *spread.tolist()})
