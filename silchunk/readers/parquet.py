"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from silchunk.errors import InputError
from silchunk.readers.libraries import needed
from silchunk.readers.tables import NUMBERS, Column, must_be_file
from silchunk.rows import COPY_BYTES

# Read at once from the file, so that a large row group is not held as a whole.
BUFFER_BYTES = 1 << 20


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file, read batch by batch."""

    path: str
    columns: tuple[Column, ...]

    @classmethod
    def opened(cls, path: str, name: str) -> ParquetTable:
        """What its footer says.

        Raises
        ------
        InputError
            It is no Parquet file, or is damaged.
        """
        described = f"{name}: {path}"
        pa = needed("pyarrow", described)
        must_be_file(path, described)
        try:
            with _file(path) as file:
                fields = list(file.schema_arrow)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{described} is not a readable Parquet file: {error}") from error
        return cls(path, tuple(_column(pa.types, field) for field in fields))

    def batches(self, chosen: Sequence[Column], *, text: bool = False) -> Iterator[Any]:
        pa = needed("pyarrow", self.path)
        names = [column.name for column in chosen]
        step = min(1 << 16, max(1, COPY_BYTES // (8 * len(names))))
        try:
            with _file(self.path) as file:
                for batch in file.iter_batches(step, columns=names, use_threads=False):
                    yield batch.select(names)  # they come in the order of the file
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path} cannot be read to its end: {error}") from error


def _file(path: str) -> Any:
    parquet = needed("pyarrow.parquet", path)
    return parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False)


def _column(types: Any, field: Any) -> Column:
    kind = field.type
    if types.is_floating(kind):
        return Column(field.name, NUMBERS, single=kind.bit_width <= 32)
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return Column(field.name, NUMBERS)
    if types.is_string(kind) or types.is_large_string(kind):
        return Column(field.name, "text")
    return Column(field.name, str(kind))
