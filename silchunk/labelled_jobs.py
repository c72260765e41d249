"""A prepared job together with the labels of its points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from silchunk.labels import Labels, check_number_of_clusters, read_labels
from silchunk.prepare import Arguments, Job, Needs, prepared
from silchunk.tiles import Codes


@contextmanager
def labelled_job(
    X: Any,
    labels: Any,
    noise: str | None,
    arguments: Arguments,
    needs_of: Callable[[int, Labels], Needs],
) -> Iterator[tuple[Job, Labels, Codes]]:
    """A job over ``X``, its labels, and their codes as tasks carry them.

    ``needs_of`` says what is held for n points with these labels, the codes apart.

    Raises
    ------
    InputError
        ``X``, labels or arguments are wrong, or there are not from 2 to n - 1 clusters.
    """
    found: list[Labels] = []

    def needs_of_points(n: int) -> Needs:
        known = read_labels(labels, n, noise=noise)
        check_number_of_clusters(known)
        found.append(known)
        needs = needs_of(n, known)
        held = needs.result_bytes + known.codes.nbytes
        return replace(needs, result_bytes=held, labels=labels)

    with prepared(X, arguments, needs_of=needs_of_points) as job:
        yield job, found[-1], job.shared(found[-1].codes, "codes")
