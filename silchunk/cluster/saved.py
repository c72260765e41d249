"""A fit's state on disk after each iteration, so that a fit that is killed goes on.

One ``.npz`` file of numbers and JSON text, written beside its name and renamed: it is whole at any
time. Its header tells which points, algorithm and parameters it is of.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from silchunk import storage
from silchunk.cluster.iteration import Iteration, Rank, Run, State
from silchunk.disk import replace_whole, room_for
from silchunk.errors import ForeignStoreError, InputError, StaleStoreError
from silchunk.readers.npz import DAMAGED
from silchunk.rows import Block

KIND = "silchunk fit"
# Of what is in a file beside its header, which tells it; another one is refused.
FORMAT = 2
# Runs that have ended and are kept, as `Progress` names them.
RUNS = ("best", "reference")
# What reading something else ends with.
NO_FIT = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    *DAMAGED,
)


@dataclass(frozen=True)
class Progress:
    """How far a fit of several runs has come."""

    seed: int | None = None  # that all randomness comes of
    run: int = 0  # the one that is under way
    first: Block | None = None  # centres that it begins with; None: they are still to be drawn
    state: State | None = None  # its own; None: it has not begun
    best: Run | None = None  # the best one that has ended
    reference: Run | None = None  # and of those that it is held against
    bar: Rank | None = None  # what the best has to exceed, or the reference is kept


@dataclass(frozen=True)
class Checkpoint:
    """The file of one fit.

    Attributes
    ----------
    path : Path
    header : dict of JSON's types
        What the fit is of; a file with another is refused.
    """

    path: Path
    header: Mapping[str, Any]

    def load(self) -> Progress:
        """What is kept there; nothing if there is no file.

        Raises
        ------
        ForeignStoreError
            Something else is there; it is left as it is.
        StaleStoreError
            It is of another fit.
        """
        if not os.path.lexists(self.path):
            return Progress()
        arrays, facts = _read(self.path)
        found = [
            f"{name} was {facts['header'].get(name)!r}, now {value!r}"
            for name, value in self.header.items()
            if facts["header"].get(name) != value
        ]
        if found:
            raise StaleStoreError(
                f"{self.path} is the checkpoint of another fit: {'; '.join(found)}. Delete that "
                "file, or name another."
            )
        return Progress(
            facts["seed"],
            facts["run"],
            arrays.get("first"),
            _state(arrays, facts["state"]),
            bar=None if facts["bar"] is None else Rank(*facts["bar"]),
            **{name: _run(arrays, facts[name], name) for name in RUNS},
        )

    def write(self, progress: Progress) -> None:
        """Keep how far the fit has come; on disk when this returns."""
        facts: dict[str, Any] = {
            "kind": KIND,
            "header": dict(self.header),
            "seed": progress.seed,
            "run": progress.run,
            "bar": progress.bar,
        }
        arrays: dict[str, Block] = {} if progress.first is None else {"first": progress.first}
        facts["state"] = _facts_of_state(progress.state, arrays)
        for name in RUNS:
            facts[name] = _facts_of_run(getattr(progress, name), arrays, name)
        stream = io.BytesIO()
        text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        np.savez(stream, allow_pickle=False, facts=text, **arrays)
        content = stream.getvalue()
        with room_for(self.path, len(content)):
            replace_whole(self.path, content)


def at(path: str | os.PathLike[str], header: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint at a path, which need not be there yet.

    Raises
    ------
    InputError
        There is no folder for it.
    ForeignStoreError
        Something else is there.
    """
    place = storage.local_path(path)
    if not place.parent.is_dir():
        raise InputError(f"there is no folder {str(place.parent)!r} to make {place.name} in.")
    if os.path.lexists(place):
        _read(place)
    return Checkpoint(place, json.loads(json.dumps({"format": FORMAT, **header})))


def _read(path: Path) -> tuple[dict[str, Block], dict[str, Any]]:
    foreign = ForeignStoreError(
        f"{path} is not the checkpoint of a silchunk fit. It is left as it is; name another path."
    )
    if path.is_symlink() or not path.is_file():
        raise foreign
    try:
        # Opened here: what turns out to be no archive is closed, too.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            arrays = dict(kept)
        facts = json.loads(arrays.pop("facts").tobytes())
        kind = facts["kind"]
    except NO_FIT as error:
        raise foreign from error
    if kind != KIND:
        raise foreign
    return arrays, facts


def _facts_of_state(state: State | None, arrays: dict[str, Block]) -> dict[str, Any] | None:
    if state is None:
        return None
    for part in ("centres", "before", "best"):
        value = getattr(state, part)
        if value is not None:
            arrays[f"state-{part}"] = value
    arrays["state-history"] = _table(state.history)
    # JSON keeps every bit of a float.
    return {
        "temperature": state.temperature,
        "best_rank": state.best_rank,
        "best_iteration": state.best_iteration,
        "seen": state.seen,
        "done": state.done,
    }


def _state(arrays: Mapping[str, Block], facts: dict[str, Any] | None) -> State | None:
    if facts is None:
        return None
    return State(
        arrays["state-centres"],
        facts["temperature"],
        arrays["state-best"],
        arrays.get("state-before"),
        Rank(*facts["best_rank"]),
        facts["best_iteration"],
        _history(arrays["state-history"]),
        facts["seen"],
        facts["done"],
    )


def _facts_of_run(run: Run | None, arrays: dict[str, Block], name: str) -> dict[str, Any] | None:
    if run is None:
        return None
    arrays[f"{name}-centres"] = run.centres
    arrays[f"{name}-history"] = _table(run.history)
    return {"rank": run.rank}


def _run(arrays: Mapping[str, Block], facts: dict[str, Any] | None, name: str) -> Run | None:
    if facts is None:
        return None
    history = _history(arrays[f"{name}-history"])
    return Run(arrays[f"{name}-centres"], Rank(*facts["rank"]), history)


def _table(history: list[Iteration]) -> Block:
    return np.array(history, np.float64).reshape(len(history), len(Iteration._fields))


def _history(table: Block) -> list[Iteration]:
    whole = ("iteration", "labels_changed", "empty_clusters")
    return [
        Iteration._make(
            int(value) if field in whole else float(value)
            for field, value in zip(Iteration._fields, row, strict=True)
        )
        for row in table
    ]
