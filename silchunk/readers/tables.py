"""Tables with named columns: which of them are features, and their way into one ``.npy`` file."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from silchunk.disk import room_for
from silchunk.errors import InputError, StoppedError, warn
from silchunk.readers.libraries import needed
from silchunk.readers.scratch import owning, scratch
from silchunk.rows import COPY_BYTES, Block, NpyRows
from silchunk.stopping import stop_requested

# Names that pandas gives an index it writes along with the columns; they are no features.
INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")
# Columns; wider files are no tables.
WIDEST = 200_000
NAMED_AT_MOST = 8

# Names of columns that number the points: id, customer_id, customerID.
IDENTIFIER = re.compile(r"(?:^|[\s_.-])(?i:id)$|[a-z]I[Dd]$")

NUMBERS, EMPTY = "numbers", "nothing"


@dataclass(frozen=True)
class Column:
    """A column of a file.

    Attributes
    ----------
    holds : str
        NUMBERS, EMPTY or what else, in a word.
    single : bool
        Whether its numbers are float32.
    """

    name: str
    holds: str
    single: bool = False


class Table(Protocol):
    """A file with named columns, read from its beginning to its end, a few rows at a time."""

    @property
    def path(self) -> str: ...

    @property
    def columns(self) -> Sequence[Column]: ...

    def batches(self, chosen: Sequence[Column], *, text: bool = False) -> Iterator[Any]:
        """The chosen columns as Arrow record batches; ``text``: as they are written."""


def feature_rows(
    table: Table,
    *,
    columns: Sequence[str] | None,
    label_column: str | None,
    missing: bool,
    name: str,
) -> NpyRows:
    """Columns of numbers, converted once into a scratch file, a few rows at a time.

    Raises
    ------
    InputError
        There is nothing to read, or something that is not a finite number.
    DiskFullError
    """
    chosen = features(table, columns, label_column, name)
    described = f"{name}: {table.path}"
    counters, bad = _Counters(len(chosen)), _BadRows(chosen, missing)
    dtype = np.dtype(np.float32 if all(column.single for column in chosen) else np.float64)
    with scratch() as folder:
        path = folder / "points.npy"
        n = 0
        with path.open("wb") as stream:
            _write_header(stream, dtype, n, len(chosen))
            for batch in table.batches(chosen):
                if stop_requested.is_set():
                    raise StoppedError(f"stopped as asked while {table.path} was read.")
                for block in _blocks(batch, dtype):
                    bad.look_at(block, n)
                    counters.look_at(block)
                    if not bad.rows:
                        with room_for(path, block.nbytes):
                            stream.write(block.data)
                    n += len(block)
            stream.seek(0)
            _write_header(stream, dtype, n, len(chosen))
        if n == 0:
            raise InputError(f"{described} has no rows.")
        bad.refuse(described, n)
        if columns is None:
            _warn_of_identifiers(chosen, counters.counting & (n > 2), described)
        rows = NpyRows(str(path), (n, len(chosen)), dtype, read_with="pyarrow")
    owning(rows, folder)
    return rows


def features(
    table: Table, columns: Sequence[str] | None, label_column: str | None, name: str
) -> list[Column]:
    """The columns that are asked for, by default all that hold numbers, but for the labels."""
    described = f"{name}: {table.path}"
    if len(table.columns) > WIDEST:
        raise InputError(
            f"{described} has {len(table.columns):,} columns, more than {WIDEST:,}. Is it "
            "transposed? Wide arrays are read from .npy files and Zarr arrays."
        )
    if label_column is not None:
        find(table, label_column, described)
    if columns is not None:
        if isinstance(columns, str) or not columns:
            raise InputError(f"columns must be a list of names; got {columns!r}.")
        twice = [one for one, times in Counter(columns).items() if times > 1]
        if twice:
            raise InputError(f"columns has {twice[0]!r} twice.")
        chosen = [find(table, one, described) for one in columns]
        for column in chosen:
            if column.holds not in (NUMBERS, EMPTY):
                raise InputError(
                    f"{described}: column {column.name!r} holds {column.holds}, not numbers."
                )
        return chosen
    candidates = [column for column in table.columns if column.name != label_column]
    chosen = [
        column
        for column in candidates
        if column.holds == NUMBERS and column.name not in INDEX_NAMES
    ]
    for column in candidates:
        if column.holds.startswith("numbers with"):
            raise InputError(
                f"{described}: column {column.name!r} holds {column.holds}. Write them with a "
                "point, or choose other columns."
            )
    times = Counter(column.name for column in table.columns)
    for column in chosen:
        if times[column.name] > 1:
            raise InputError(f"{described} has {times[column.name]} columns named {column.name!r}.")
    taken = {column.name for column in chosen}
    left = [column for column in candidates if column.name not in taken]
    if not chosen:
        raise InputError(f"{described} has no column of numbers; it has {_told(left)}.")
    if left:
        warn(
            f"{described}: left out {_told(left)}. Name the columns to read, to choose others or "
            "to silence this."
        )
    return chosen


def find(table: Table, wanted: str, described: str) -> Column:
    """The one column of a name.

    Raises
    ------
    InputError
        There is none, with the nearest, or there are several.
    """
    found = [column for column in table.columns if column.name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"{described} has {len(found)} columns named {wanted!r}.")
    raise InputError(
        f"{described} has no column {wanted!r}{nearest(wanted, [c.name for c in table.columns])}"
    )


def nearest(wanted: str, names: Sequence[str]) -> str:
    """The end of a message: which name may have been meant, or which there are."""
    close = difflib.get_close_matches(wanted, names, n=1)
    if not close:
        close = [one for one in names if one.lower() == wanted.lower()][:1]
    if close:
        return f"; did you mean {close[0]!r}?"
    more = "" if len(names) <= NAMED_AT_MOST else f", and {len(names) - NAMED_AT_MOST:,} more"
    return f"; it has {', '.join(map(repr, names[:NAMED_AT_MOST])) or 'nothing'}{more}."


def label_vector(table: Table, column: str | None, name: str) -> Block:
    """The labels in a column, which need not be named where it is the only one.

    Raises
    ------
    InputError
        There is no such column, or a row of it is empty.
    """
    described = f"{name}: {table.path}"
    if column is None:
        if len(table.columns) != 1:
            raise InputError(
                f"{described} has {len(table.columns)} columns; say which has the labels: "
                f"{table.path}:{table.columns[0].name or 'NAME'}."
            )
        chosen = table.columns[0]
    else:
        chosen = find(table, column, described)
    known: dict[Any, int] = {}
    parts = []
    n = 0
    for batch in table.batches([chosen], text=True):
        values = batch.column(0)
        if values.null_count:
            row = n + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise InputError(
                f"{described}: column {chosen.name!r} is empty in row {row} (counted from 0)."
            )
        coded = values.dictionary_encode() if not hasattr(values, "dictionary") else values
        codes = [known.setdefault(one, len(known)) for one in coded.dictionary.to_pylist()]
        parts.append(np.array(codes, np.int64)[coded.indices.to_numpy(zero_copy_only=False)])
        n += len(values)
    if n == 0:
        raise InputError(f"{described} has no rows.")
    classes = np.empty(len(known), object)
    classes[:] = _as_read(list(known))
    labels: Block = classes[np.concatenate(parts)]
    return labels


def _as_read(classes: list[Any]) -> list[Any]:
    """Text as numbers, where all of it is."""
    for kind in (int, float):
        if all(isinstance(one, str) for one in classes):
            try:
                read = [kind(one) for one in classes]
            except ValueError:
                continue
            if len(set(read)) == len(classes):  # not 1 and 01
                return read
    return classes


def _blocks(batch: Any, dtype: np.dtype[Any]) -> Iterator[Block]:
    """A record batch as C-contiguous blocks of bounded size."""
    width = batch.num_columns
    step = max(1, COPY_BYTES // (8 * width))
    for start in range(0, batch.num_rows, step):
        part = batch.slice(start, step)
        block = np.empty((part.num_rows, width), dtype)
        for j in range(width):
            block[:, j] = _numbers(part.column(j))
        yield block


def _numbers(values: Any) -> Block:
    pa, pc = needed("pyarrow", "a table"), needed("pyarrow.compute", "a table")
    if pa.types.is_boolean(values.type):
        values = pc.cast(values, pa.int8())
    # Integers that float64 does not have are rounded, as numpy does it.
    floats = pc.cast(values, pa.float64(), safe=False)
    numbers: Block = floats.to_numpy(zero_copy_only=False)
    return numbers


class _BadRows:
    """Rows with a value that is no finite number: how many, and what the first of them has."""

    def __init__(self, chosen: Sequence[Column], missing: bool) -> None:
        self.chosen = chosen
        self.missing = missing
        self.first = ""
        self.rows = 0

    def look_at(self, block: Block, start: int) -> None:
        """At the rows from ``start`` on."""
        bad = np.isinf(block) if self.missing else ~np.isfinite(block)
        if not bad.any():
            return
        if not self.rows:
            row, column = np.argwhere(bad)[0]
            value = block[row, column]
            what = "no number" if np.isnan(value) else str(value)
            name = self.chosen[column].name
            self.first = f"{what} in row {start + int(row)} (counted from 0), column {name!r}"
        self.rows += int(bad.any(axis=1).sum())

    def refuse(self, described: str, n: int) -> None:
        if not self.rows:
            return
        others = "" if self.rows == 1 else f"; {self.rows:,} of {n:,} rows have such values"
        raise InputError(
            f"{described} has {self.first}{others}. Distances need finite values: drop such rows "
            "or fill them in first (in pandas: frame.dropna()), or choose other columns."
        )


class _Counters:
    """Which columns do nothing but count their rows."""

    def __init__(self, width: int) -> None:
        self.counting = np.ones(width, bool)
        self.last: Block | None = None

    def look_at(self, block: Block) -> None:
        """At the rows that come next."""
        if not self.counting.any():
            return
        steps = np.diff(block, axis=0)
        self.counting &= (steps == 1).all(axis=0)
        if self.last is not None and len(block):
            self.counting &= block[0] - self.last == 1
        if len(block):
            self.last = block[-1].copy()


def _warn_of_identifiers(chosen: Sequence[Column], counting: Block, described: str) -> None:
    """Of columns that tell points apart rather than say what they are like."""
    found = [
        column.name
        for column, counts in zip(chosen, counting.tolist(), strict=True)
        if counts or IDENTIFIER.search(column.name)
    ]
    if found:
        warn(
            f"{described}: {', '.join(map(repr, found[:NAMED_AT_MOST]))} "
            f"{'seems' if len(found) == 1 else 'seem'} to number the points, and yet "
            f"{'counts as a feature' if len(found) == 1 else 'count as features'}. Name the "
            "columns to read, to leave that out or to silence this."
        )


def _write_header(stream: Any, dtype: np.dtype[Any], n: int, width: int) -> None:
    # As long for any number of rows: numpy leaves room for 21 digits.
    header = {"descr": dtype.str, "fortran_order": False, "shape": (n, width)}
    np.lib.format.write_array_header_2_0(stream, header)


def _told(columns: Sequence[Column]) -> str:
    told = [f"{column.name!r} ({column.holds})" for column in columns[:NAMED_AT_MOST]]
    more = len(columns) - NAMED_AT_MOST
    return ", ".join(told) + (f" and {more:,} more" if more > 0 else "")


def must_be_file(path: str, described: str) -> Path:
    """The path of a file that is there and not empty.

    Raises
    ------
    InputError
    """
    file = Path(path)
    if file.is_dir():
        raise InputError(f"{described} is a folder; give one file.")
    if file.stat().st_size == 0:
        raise InputError(f"{described} is an empty file.")
    return file
