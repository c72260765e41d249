"""Clusterings of one data set into several numbers of clusters, each recorded when it is done."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from silchunk.checkpoint import Checkpoint
from silchunk.cluster.choices import Clusterer
from silchunk.errors import (
    ClusterError,
    InputTypeError,
    SilchunkError,
    StoppedError,
    StoreError,
)
from silchunk.indices import calinski_harabasz_score, davies_bouldin_score
from silchunk.labels import NOISE, Labels, read_labels
from silchunk.plan import SCIKIT_LEARN_BYTES
from silchunk.prepare import Arguments
from silchunk.rows import RowSource
from silchunk.silhouettes import silhouette_table
from silchunk.stopping import stop_requested

Vector = np.ndarray[Any, np.dtype[Any]]

# What is no fault of a K; a full disk, a missing input and a stop are OSErrors.
PASSED_ON = (ClusterError, InputTypeError, MemoryError, OSError, StoreError)


@dataclass(frozen=True)
class Found:
    """What is known of one K before the pass over the distances."""

    n_clusters: int
    labels: Vector | None = None  # (n,) int32
    n_found: int | None = None
    smallest: int | None = None
    scores: tuple[float, float] | None = None  # micro and macro, where they take no distances
    davies_bouldin: float | None = None
    calinski_harabasz: float | None = None
    scorable: bool = False  # whether there are from 2 to n - 1 clusters
    reason: str | None = None

    def arrays(self) -> dict[str, Vector]:
        """All of it as arrays, to be kept in a file."""
        facts = {name: value for name, value in asdict(self).items() if name != "labels"}
        text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        return {"facts": text} | ({} if self.labels is None else {"labels": self.labels})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Vector]) -> Found:
        """The reverse of `arrays`."""
        facts = json.loads(arrays["facts"].tobytes())
        if facts["scores"] is not None:
            facts["scores"] = tuple(facts["scores"])
        return cls(**facts, labels=arrays.get("labels"))


@dataclass(frozen=True)
class Clusterings:
    """Finding clusters, K by K; ``arguments`` have a number of bytes for memory."""

    source: RowSource
    arguments: Arguments
    finds: Clusterer
    matrix: bool
    by_pass: bool
    folder: Path | None

    def all(
        self,
        counts: list[int],
        records: Checkpoint | None,
        tell: Callable[[str], None],
    ) -> dict[int, Found]:
        """One after the other; those that are recorded are read."""
        missing = set(counts if records is None else records.missing(counts[-1] + 1))
        found = {}
        for i, K in enumerate(counts):
            if records is not None and K not in missing:
                found[K] = Found.from_arrays(records.read(K))
                continue
            if stop_requested.is_set():
                raise StoppedError(
                    f"stopped as asked after {i:,} of {len(counts):,} numbers of clusters; what "
                    "has been recorded is kept. Run the same again to go on."
                )
            tell(f"K = {K:,} ({i + 1:,} of {len(counts):,})")
            found[K] = self.one(K)
            if records is not None:
                records.write(K, found[K].arrays())
                self._fit(K).unlink(missing_ok=True)
        return found

    def one(self, K: int) -> Found:
        """Find K clusters."""
        if K < 2:
            return Found(K, reason="A silhouette needs two clusters at least.")
        n = self.source.shape[0]
        try:
            given = self.finds.labels(K, None if self.folder is None else self._fit(K))
            read = read_labels(given, n, noise="cluster")
        except PASSED_ON:
            raise
        except Exception as error:
            return Found(K, reason=_in_words(error))
        if NOISE in read.classes:
            read_labels(given, n)  # warns of them
        return self._scored(K, _as_int32(given, read), read)

    def _fit(self, K: int) -> Path:
        assert self.folder is not None
        return self.folder / f"fit-{K}.npz"

    def _scored(self, K: int, labels: Vector, read: Labels) -> Found:
        n, n_found = len(labels), read.n_clusters
        found = Found(K, labels, n_found, int(read.sizes.min()))
        if n_found < 2:
            return replace(found, reason="All points came into one cluster.")
        if n_found >= n:
            return replace(found, reason="Every point is a cluster of its own.")
        if n_found != K:
            clusters = "cluster" if n_found == 1 else "clusters"
            found = replace(found, reason=f"{n_found:,} {clusters} found instead of {K:,}.")
        one = self.arguments
        assert isinstance(one.memory, int)
        running: dict[str, Any] = {
            # These do not know that the estimators' library is there.
            "memory": max(1, one.memory - SCIKIT_LEARN_BYTES),
            "progress": one.progress,
            "scheduler": one.scheduler,
        }
        scores = None
        if not self.by_pass:
            table = silhouette_table(
                self.source,
                read,
                metric=one.metric,
                metric_params=one.metric_params,
                dtype=one.dtype,
                **running,
            )
            scores = table.micro, table.macro
        if self.matrix:
            return replace(found, scorable=True)
        return replace(
            found,
            scorable=True,
            scores=scores,
            davies_bouldin=davies_bouldin_score(self.source, read, **running),
            calinski_harabasz=calinski_harabasz_score(self.source, read, **running),
        )


def _as_int32(given: Any, read: Labels) -> Vector:
    """Labels as they were given where they are small integers, else their places in order."""
    array = np.asarray(given) if hasattr(given, "__array__") else np.asarray(read.classes)
    limits = np.iinfo(np.int32)
    integers = all(
        isinstance(label, (int, np.integer))
        and not isinstance(label, bool)
        and limits.min <= label <= limits.max
        for label in read.classes
    )
    if integers and array.dtype.kind in "iu":
        return np.array(read.classes, np.int32)[read.codes]
    return read.codes.astype(np.int32)


def _in_words(error: Exception) -> str:
    """An error in one line."""
    message = " ".join(str(error).split()) or "no message"
    return message if isinstance(error, SilchunkError) else f"{type(error).__name__}: {message}"
