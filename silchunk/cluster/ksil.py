"""K-Sil: k-means that listens to its confident points."""

from __future__ import annotations

import os
from typing import Any

from silchunk.cluster.base import Callback, CentroidClusterer, Init, check_number
from silchunk.cluster.fitting import Fitted, Reference
from silchunk.cluster.iteration import Rules, Temperature
from silchunk.cluster.passes import LARGEST_TEMPERATURE
from silchunk.engine import Scheduler
from silchunk.errors import InputError
from silchunk.progress import Progress

OBJECTIVES = ("macro", "micro")
# What did best on real data sets, relative to the first temperature: see benchmarks/README.md.
TEMPERATURE_RANGE = (0.7, 1.4)
TEMPERATURE_STEP = 1.1
# The smallest one there with which K-Sil is hardly ever worse than k-means, and gains as much on
# average as without any.
MARGIN = 2.5


class KSil(CentroidClusterer):
    """k-means in which each point weighs exp(τ s), with s how clearly it belongs to its cluster.

    s = 1 - a/b, with a and b the distances to the nearest and the second nearest centre: 0 halfway
    between two clusters, 1 at a centre. After each iteration τ is multiplied by
    ``temperature_step`` where the objective has improved, else divided by it. The best centres by
    the objective are kept, or those of k-means from the same starts where that gains too little.

    Parameters
    ----------
    n_clusters : int
        K.
    temperature : float
        First τ; with 0 all weights stay 1, and nothing is held against k-means.
    temperature_range : (float, float), optional
        τ stays within; from 0.7 to 1.4 times the first one by default.
    temperature_step : float
        At least 1; with 1, τ stays as it is.
    objective : "macro" or "micro"
        Mean of s over clusters, each of their mean, or over points.
    margin : float or None
        k-means runs from each start first. Its best centres are kept unless K-Sil's have a larger
        objective, by more than so many standard errors of it: less may be chance. (Fewer clusters
        that are empty, or below ``min_cluster_size``, count before all.) None: K-Sil alone.
    init, n_init, max_iter, tol, min_cluster_size, random_state, memory, scheduler, progress, \
    checkpoint, callback
        As in `KMeans`.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_iter_, history_, n_features_in_
        As in `KMeans`.
    algorithm_ : "K-Sil" or "k-means"
        Which of them these are of.
    silhouette_ : float
        The objective for the final centres.

    Notes
    -----
    O(n K d) time an iteration, and one read of the points. The standard error is that of the mean
    of s for the centres of k-means, were the points, each as often as its ``sample_weight`` says,
    a random sample. ``callback`` is given the iterations of k-means, too; each run counts them from
    1 on. Semoglou, Likas & Pavlopoulos,
    Silhouette-Guided Instance-Weighted k-means, arXiv:2506.12878. The iterations end when labels
    and centres stand still, when labels return to what they were, or when the objective has not
    improved for ten iterations.

    Examples
    --------
    An outlier weighs less than the points around a centre:

    >>> import numpy as np
    >>> from silchunk.cluster.ksil import KSil
    >>> X = [[0.0], [0.0], [0.0], [4.0], [10.0], [10.0]]
    >>> found = KSil(2, init=[[0.0], [10.0]], temperature_range=(0, 5), margin=None).fit(X)
    >>> bool(found.cluster_centers_[0, 0] < np.mean([0, 0, 0, 4]))
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        temperature: float = 1.0,
        temperature_range: tuple[float, float] | None = None,
        temperature_step: float = TEMPERATURE_STEP,
        objective: str = "macro",
        margin: float | None = MARGIN,
        init: Init = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        min_cluster_size: int = 1,
        random_state: Any = None,
        memory: int | str | None = None,
        scheduler: Scheduler = None,
        progress: Progress = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
    ) -> None:
        super().__init__(
            n_clusters,
            init=init,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            min_cluster_size=min_cluster_size,
            random_state=random_state,
            memory=memory,
            scheduler=scheduler,
            progress=progress,
            checkpoint=checkpoint,
            callback=callback,
        )
        self.temperature = temperature
        self.temperature_range = temperature_range
        self.temperature_step = temperature_step
        self.objective = objective
        self.margin = margin

    def _rules(self) -> Rules:
        schedule = Temperature(self.temperature, *self._limits(), self.temperature_step)
        return Rules(
            self.objective,
            self.max_iter,
            self.min_cluster_size,
            temperature=schedule,
            # Of directions, ‖u - c‖² is twice the cosine distance.
            squared=self._directions,
            directions=self._directions,
        )

    def _reference(self) -> Reference | None:
        if self.margin is None or self.temperature == 0:
            return None
        rules = Rules(
            "inertia",
            self.max_iter,
            self.min_cluster_size,
            squared=self._directions,
            directions=self._directions,
            title="k-means iteration",
        )
        return Reference(rules, self.margin)

    def _keep(self, fitted: Fitted) -> None:
        super()._keep(fitted)
        self.algorithm_ = "k-means" if fitted.by_reference else "K-Sil"

    def _kept_by(self) -> str:
        return super()._kept_by() if self.algorithm_ == "K-Sil" else "inertia"

    def _limits(self) -> tuple[float, float]:
        if self.temperature_range is not None:
            low, high = self.temperature_range
            return low, high
        low, high = (factor * self.temperature for factor in TEMPERATURE_RANGE)
        return low, min(high, LARGEST_TEMPERATURE)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.objective not in OBJECTIVES:
            raise InputError(f"objective must be 'macro' or 'micro'; got {self.objective!r}.")
        check_number(self.temperature_step, "temperature_step", 1.0)
        if self.margin is not None:
            check_number(self.margin, "margin")
        check_number(self.temperature, "temperature", 0.0, LARGEST_TEMPERATURE)
        try:
            low, high = self._limits()
        except (TypeError, ValueError) as error:
            raise InputError(
                f"temperature_range must be two numbers; got {self.temperature_range!r}."
            ) from error
        check_number(low, "the first of temperature_range", 0.0, LARGEST_TEMPERATURE)
        check_number(high, "the second of temperature_range", float(low), LARGEST_TEMPERATURE)
        if self.temperature and not low <= self.temperature <= high:
            raise InputError(
                f"temperature {self.temperature:g} is not in temperature_range ({low:g}, {high:g})."
            )


class SphericalKSil(KSil):
    """K-Sil of directions, such as embeddings of texts, by cosine distance.

    Points are divided by their norms, centres have norm 1, and s = 1 - a/b is formed of cosine
    distances. Parameters and attributes are those of `KSil`; ``inertia_`` is the sum of squared
    distances between directions, twice that of cosine distances. Rows of zeros have no direction
    and are refused.

    Examples
    --------
    >>> from silchunk.cluster.ksil import SphericalKSil
    >>> found = SphericalKSil(2, random_state=0).fit([[1, 0], [9, 1], [0, 2], [1, 7]])
    >>> bool(found.labels_[0] == found.labels_[1] != found.labels_[2] == found.labels_[3])
    True
    """

    _directions = True
