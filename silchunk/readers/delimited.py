"""Text files with separators: CSV and TSV, also compressed by gzip."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from silchunk.errors import InputError, warn
from silchunk.readers.libraries import needed
from silchunk.readers.tables import EMPTY, NUMBERS, WIDEST, Column, must_be_file

# Parsed at once, or a few lines where these are longer.
BLOCK_BYTES = 1 << 20
LONGEST_LINE = 32 << 20
SEPARATORS = ",;\t|"

DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
CONVERSION = re.compile(r"In CSV column #(\d+):(?: Row #(\d+):)? .*invalid value '(.*)'", re.S)
RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", re.S)


@dataclass(frozen=True)
class DelimitedTable:
    """A text file, parsed as a stream.

    Attributes
    ----------
    named : bool
        Whether its first line has the names; else they are f0, f1, ...
    """

    path: str
    columns: tuple[Column, ...]
    separator: str
    named: bool
    block_bytes: int

    @classmethod
    def opened(cls, path: str, name: str) -> DelimitedTable:
        """Look at its first lines.

        Raises
        ------
        InputError
            It is no such text.
        """
        described = f"{name}: {path}"
        pa = needed("pyarrow", described)
        must_be_file(path, described)
        line = _first_line(path, described)
        separator = _separator(line, "\t" if ".tsv" in path.lower() else ",")
        block_bytes = max(BLOCK_BYTES, 4 * len(line))
        table = cls(path, (), separator, True, block_bytes)
        try:
            with table._reader() as reader:
                names, types = reader.schema.names, reader.schema.types
            if len(names) > WIDEST:
                return cls(path, tuple(Column(one, EMPTY) for one in names), separator, True, 0)
            named = not _are_numbers(names)
            table = cls(path, (), separator, named, block_bytes)
            with table._reader() as reader:
                names, types = reader.schema.names, reader.schema.types
                first = next(iter(reader), None)
        except UnicodeDecodeError as error:
            raise InputError(f"{described} is not UTF-8 text: {error}") from error
        except (pa.ArrowException, OSError, EOFError) as error:
            raise table._told(error, described) from error
        if not named:
            warn(
                f"{described} has numbers in its first line, so that line counts as a row, and the "
                f"columns are called {names[0]} to {names[-1]}."
            )
        elif len(names) > 1 and _are_counted(names):
            warn(f"{described}: its first line, 0 to {names[-1]}, is taken for the columns' names.")
        columns = [
            Column(one, _holds(pa.types, kind, None if first is None else first.column(i)))
            for i, (one, kind) in enumerate(zip(names, types, strict=True))
        ]
        return cls(path, tuple(columns), separator, named, block_bytes)

    def batches(self, chosen: Sequence[Column], *, text: bool = False) -> Iterator[Any]:
        pa = needed("pyarrow", self.path)
        kind = pa.string() if text else pa.float64()
        try:
            with self._reader({column.name: kind for column in chosen}, text) as reader:
                yield from reader
        except (pa.ArrowException, OSError, EOFError) as error:
            raise self._told(error, self.path) from error

    def _reader(self, types: dict[str, Any] | None = None, text: bool = False) -> Any:
        csv = needed("pyarrow.csv", self.path)
        converted = csv.ConvertOptions(
            column_types=types,
            include_columns=None if types is None else list(types),
            # A label may well be called NA.
            null_values=[""] if text else None,
            strings_can_be_null=text,
        )
        return csv.open_csv(
            self.path,
            # One thread: then errors have the numbers of their rows.
            read_options=csv.ReadOptions(
                use_threads=False,
                block_size=self.block_bytes,
                autogenerate_column_names=not self.named,
            ),
            parse_options=csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            convert_options=converted,
        )

    def _told(self, error: Exception, described: str) -> InputError:
        """An error of the parser in terms of the file."""
        message = str(error)
        ragged = RAGGED.search(message)
        if ragged:
            line, expected, got = ragged.groups()
            where = f"line {line}" if line else "a line"
            hint = ""
            if self.separator == "," and int(got) == 2 * int(expected):
                hint = " Numbers with a decimal comma? Write them with a point."
            return InputError(
                f"{described}: {where} has {got} values where the first line has {expected}.{hint}"
            )
        converted = CONVERSION.search(message)
        if converted:
            column, line, value = converted.groups()
            name = self.columns[int(column)].name
            where = f"line {line}" if line else "a line"
            return InputError(
                f"{described}: {where} has {value!r} in column {name!r}, which is not a number "
                "while the first ones are. Name the columns to read, without this one, or mend it."
            )
        if "Empty CSV file" in message:
            return InputError(f"{described} has no lines after its first one.")
        if "UTF8" in message:
            return InputError(f"{described} is not UTF-8 text: {message}")
        return InputError(f"{described} cannot be read as a table with separators: {message}")


def _first_line(path: str, described: str) -> str:
    try:
        with gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb") as stream:
            line = stream.readline(LONGEST_LINE)
    except (OSError, EOFError) as error:
        raise InputError(f"{described} is not a readable gzip file: {error}") from error
    if not line:
        raise InputError(f"{described} is an empty file.")
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{described} is UTF-16 text; save it as UTF-8.")
    if b"\0" in line:
        raise InputError(f"{described} is not text: it has zero bytes in its first line.")
    if len(line) >= LONGEST_LINE:
        raise InputError(f"{described}: its first line does not end in {LONGEST_LINE:,} bytes.")
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{described} is not UTF-8 text: {error}. Save it as UTF-8.") from error


def _separator(line: str, usual: str) -> str:
    """The usual separator, unless the first line has others and not it."""
    bare = re.sub(r'"[^"]*"', "", line)
    if usual in bare:
        return usual
    counts = {one: bare.count(one) for one in SEPARATORS}
    most = max(counts, key=counts.__getitem__)
    return most if counts[most] else usual


def _are_numbers(names: Sequence[str]) -> bool:
    """Whether the first line is a row of data; 0, 1, 2, ... is how pandas names columns, but a lone
    0 is the label of most first points."""
    if len(names) > 1 and _are_counted(names):
        return False
    try:
        for one in names:
            float(one)
    except ValueError:
        return False
    return True


def _are_counted(names: Sequence[str]) -> bool:
    return list(names) == [str(i) for i in range(len(names))]


def _holds(types: Any, kind: Any, values: Any) -> str:
    if types.is_integer(kind) or types.is_floating(kind):
        return NUMBERS
    if types.is_null(kind):
        return EMPTY
    if types.is_boolean(kind):
        return "true and false"
    if types.is_string(kind) and values is not None:
        sample = [one for one in values[:1000].to_pylist() if one]
        if sample and all(DECIMAL_COMMA.fullmatch(one) for one in sample):
            return f"numbers with a decimal comma, such as {sample[0].strip()!r}"
    return "text" if types.is_string(kind) or types.is_binary(kind) else str(kind)
