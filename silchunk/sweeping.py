"""From one data set to clusterings into every number of clusters, and what speaks for each."""

from __future__ import annotations

import logging
import operator
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from silchunk import checkpoint as checkpoints
from silchunk import progress as reports
from silchunk import storage
from silchunk.build import build_distances
from silchunk.cluster.choices import Clusterer, clusterer
from silchunk.disk import room_for
from silchunk.engine import Scheduler, byte_budget, executor
from silchunk.errors import (
    ForeignStoreError,
    InputError,
    OutputExistsError,
)
from silchunk.labels import read_labels
from silchunk.npy_files import map_npy
from silchunk.prepare import Arguments, metric_of, opened, prepared
from silchunk.progress import Progress
from silchunk.rows import RowSource
from silchunk.sweep_clusterings import Clusterings, Found
from silchunk.sweep_jobs import measure
from silchunk.sweep_result import Sweep, SweepRow, wcre_of

log = logging.getLogger("silchunk")

Vector = np.ndarray[Any, np.dtype[Any]]
Place = str | os.PathLike[str] | None

# Silhouettes in these need no distances between points, but O(n K d), or a sort, for each K.
WITHOUT_DISTANCES = ("sqeuclidean", "cosine", "manhattan")
# What a checkpoint holds, and names that are left by a process that was killed.
OWN_NAMES = re.compile(r"clusterings|distances-[0-9a-f]{16}|fit-\d+\.npz(\.part)?|\..*\.tmp")


def sweep(
    X: Any,
    n_clusters: Iterable[int] = range(2, 21),
    *,
    estimator: Any = "ksil",
    metric: str | Callable[..., float] = "euclidean",
    random_state: int = 0,
    min_cluster_size: int | None = None,
    store: Place = None,
    labels_folder: Place = None,
    checkpoint: Place = None,
    metric_params: Mapping[str, Any] | None = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> Sweep:
    """Cluster ``X`` into every number of clusters, and score each clustering against its bounds.

    Parameters
    ----------
    X : points (n, d), or distances (n, n)
        As in `silhouette_upper_bound`. Of distances, clusters are found by a function, or by a
        clusterer with ``metric="precomputed"``.
    n_clusters : iterable of int
        Numbers of clusters to look at.
    estimator : str, clusterer or callable
        "ksil", "spherical-ksil", "kmeans", "lof-kmeans", "ilof-kmeans" or "ow-kmeans"; any
        clusterer of scikit-learn's interface with a parameter n_clusters, which is cloned, and
        gets all of X in memory; or a function of K that gives labels.
    metric, metric_params, dtype, validate
        Of silhouettes and bounds, as in `silhouette_upper_bound`. Davies-Bouldin and
        Calinski-Harabasz are Euclidean whatever the metric.
    random_state : int
        For every K the same, of estimators that have none of their own.
    min_cluster_size : int, optional
        What is passed to the estimator; a K with a smaller cluster is not recommended.
    store : path, optional
        Keep the distances there, as `build_distances` does, or go on with those that are there:
        float32 unless ``dtype`` is given.
    labels_folder : path, optional
        New folder for the labels, as ``labels-K.npy``; they are then mapped from it.
    checkpoint : path, optional
        Folder in which each K is recorded once it is done, and the pass over the distances as it
        goes, so that the same call goes on where a killed one was. More K may be asked for later.
    memory, progress, scheduler
        As in `silhouette_upper_bound`.

    Returns
    -------
    Sweep
        Also of K that could not be clustered, with the reason.

    Raises
    ------
    InputError
        ``X`` or a parameter is wrong; the message says how.
    OverBudgetError
        It cannot be done within ``memory``.
    ForeignStoreError, StaleStoreError, StoreInUseError
        ``checkpoint`` is something else, or of another input, estimator or metric, or in use.
    OutputExistsError
        ``labels_folder`` exists.
    StoppedError
        Stopped by a signal; with a checkpoint, the same call goes on.

    Notes
    -----
    A fit for each K. Then one pass over the n² distances for all of them, in which each row of
    distances is summed by cluster for every clustering, and sorted once for all bounds; for
    sqeuclidean, cosine and manhattan distances of points, silhouettes take O(n K d) or a sort
    instead. Memory: 10 bytes for each point and K, and a table of one number for each point, K and
    size that a cluster has, in a file where it is large.

    Examples
    --------
    >>> from silchunk import sweep
    >>> points = [[0.0], [0.2], [1.0], [1.1], [5.0], [5.3]]
    >>> found = sweep(points, [2, 3], estimator="kmeans")
    >>> [(row.n_clusters, row.smallest, round(row.micro, 3)) for row in found.rows]
    [(2, 2, 0.878), (3, 2, 0.869)]
    >>> found.recommended["micro"]
    2
    """
    arguments = Arguments(metric, metric_params, dtype, validate, memory, progress, scheduler)
    counts = checked_counts(n_clusters)
    random_state = _checked_integer(random_state, "random_state", 0)
    if min_cluster_size is not None:
        min_cluster_size = _checked_integer(min_cluster_size, "min_cluster_size", 1)
    labels_to = None if labels_folder is None else _new_folder(labels_folder)
    folder = None if checkpoint is None else _own_folder(checkpoint)
    tell = _Teller(progress)
    with ExitStack() as stack:
        source = stack.enter_context(opened(X, arguments))
        matrix = metric_of(source, arguments) == "precomputed"
        n = source.shape[0]
        # Labels are held all the while.
        budget = byte_budget(memory, executor(scheduler)) - 4 * n * len(counts)
        beside = replace(arguments, memory=max(1, budget))
        finds = clusterer(estimator, X, source, matrix, random_state, min_cluster_size, beside)
        records = _records(stack, folder, source, arguments, finds)
        by_pass = store is not None or not _without_distances(source, arguments)
        job = Clusterings(source, beside, finds, matrix, by_pass, folder)
        found = job.all(counts, records, tell)
        distances: Any = source
        measured = arguments
        if store is not None:
            tell("distances")
            distances = _stored(source, store, arguments, matrix)
            measured = replace(arguments, metric="precomputed", metric_params=None, dtype=None)
        possible = [K for K in counts if 2 <= K <= n]
        scored = [one for one in found.values() if one.scorable]
        tell("silhouettes and bounds of all K")
        rows = [SweepRow(K, reason=found[K].reason) for K in counts]
        name = metric_of(source, arguments)
        if possible or scored:
            whole = measure(
                distances,
                measured,
                possible,
                [read_labels(one.labels, n, noise="cluster") for one in scored],
                [one.scores for one in scored],
                folder,
            )
            name = whole.metric
            figures = dict(zip((one.n_clusters for one in scored), whole.clusterings, strict=True))
            rows = [
                _row(found[K], figures.get(K), whole.n_clusters.get(K), min_cluster_size)
                for K in counts
            ]
    labels = {K: one.labels for K, one in found.items() if one.labels is not None}
    if labels_to is not None:
        labels = _written(labels, labels_to)
    return Sweep(n, name, finds.name, rows, labels)


def checked_counts(n_clusters: Iterable[int]) -> list[int]:
    """Numbers of clusters, ascending, each once.

    Raises
    ------
    InputError
    """
    given: list[Any] = list(n_clusters) if isinstance(n_clusters, Iterable) else [n_clusters]
    counts = sorted({_checked_integer(K, "n_clusters", 1) for K in given})
    if not counts:
        raise InputError("n_clusters is empty; give numbers of clusters, such as range(2, 21).")
    return counts


def _checked_integer(value: Any, name: str, least: int) -> int:
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise InputError(f"{name} takes integers, {least} or more; got {value!r}.")
    return number


def _row(
    found: Found, measured: Any, upper_bound_n_clusters: float | None, least: int | None
) -> SweepRow:
    row = SweepRow(
        found.n_clusters,
        found.n_found,
        found.smallest,
        davies_bouldin=found.davies_bouldin,
        calinski_harabasz=found.calinski_harabasz,
        upper_bound_n_clusters=upper_bound_n_clusters,
        reason=found.reason,
    )
    if measured is not None:
        row = row._replace(
            **measured._asdict(), wcre=wcre_of(measured.micro, measured.assignment_bound)
        )
    if row.reason is None and least is not None and (found.smallest or 0) < least:
        row = row._replace(
            reason=f"The smallest cluster has {found.smallest:,} of the {least:,} points that "
            "min_cluster_size asks for."
        )
    return row


def _without_distances(source: RowSource, arguments: Arguments) -> bool:
    """Whether silhouettes are cheaper than a pass over the distances is."""
    metric = metric_of(source, arguments)
    distributed = executor(arguments.scheduler).distributed
    return metric in WITHOUT_DISTANCES and not (metric == "manhattan" and distributed)


def _stored(source: RowSource, store: Any, arguments: Arguments, matrix: bool) -> Any:
    """The distances, kept in a store."""
    if matrix:
        raise InputError("X is a matrix of distances already; leave out store=.")
    return build_distances(
        source,
        store,
        metric=arguments.metric,
        metric_params=arguments.metric_params,
        dtype=arguments.dtype or "float32",
        memory=arguments.memory,
        progress=arguments.progress,
        scheduler=arguments.scheduler,
    )


def _own_folder(checkpoint: str | os.PathLike[str]) -> Path:
    """The folder of a checkpoint, which is made if it is not there.

    Raises
    ------
    ForeignStoreError
        Something else is there; it is left as it is.
    """
    folder = storage.local_path(checkpoint)
    if not os.path.lexists(folder):
        if not folder.parent.is_dir():
            raise InputError(f"there is no folder {str(folder.parent)!r} to make {folder.name} in.")
        folder.mkdir()
    if folder.is_symlink() or not folder.is_dir():
        kind = "a symbolic link" if folder.is_symlink() else "a file"
        raise ForeignStoreError(f"{folder} is {kind}; checkpoint= names a folder of its own.")
    strange = sorted(one.name for one in folder.iterdir() if not OWN_NAMES.fullmatch(one.name))
    if strange:
        raise ForeignStoreError(
            f"{folder} is not the checkpoint of a sweep: it holds {strange[0]}. It is left as it "
            "is; name another path."
        )
    return folder


def _records(
    stack: ExitStack,
    folder: Path | None,
    source: RowSource,
    arguments: Arguments,
    finds: Clusterer,
) -> checkpoints.Checkpoint | None:
    """Where clusterings are recorded, a panel for each K; also checks all of ``source``."""
    with prepared(source, arguments) as job:
        if folder is None:
            return None
        task = {"estimator": finds.name, "parameters of the estimator": finds.digest()}
        return stack.enter_context(checkpoints.opened(folder / "clusterings", job, arguments, task))


def _new_folder(labels_folder: str | os.PathLike[str]) -> Path:
    folder = storage.local_path(labels_folder)
    if os.path.lexists(folder):
        raise OutputExistsError(f"{folder} exists already and is left as it is.")
    if not folder.parent.is_dir():
        raise InputError(f"there is no folder {str(folder.parent)!r} to make {folder.name} in.")
    return folder


def _written(labels: Mapping[int, Vector], folder: Path) -> dict[int, Vector]:
    """Labels in a new folder, and mapped from it."""
    nbytes = sum(array.nbytes for array in labels.values())
    with storage.appearing_whole(folder) as temporary, room_for(folder, nbytes):
        temporary.mkdir()
        for K, array in labels.items():
            np.save(temporary / f"labels-{K}.npy", array, allow_pickle=False)
    return {K: map_npy(folder / f"labels-{K}.npy") for K in labels}


class _Teller:
    """Tells which step begins, once a sweep has taken long enough for anyone to wonder."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.began = time.monotonic()

    def __call__(self, step: str) -> None:
        if callable(self.progress) or self.progress is False:
            return
        if time.monotonic() - self.began < reports.QUIET_SECONDS:
            return
        if self.progress or sys.stderr.isatty():
            print(f"sweep: {step}", file=sys.stderr, flush=True)
        else:
            log.info("sweep: %s", step)
