"""A panel as the bytes of a Zarr v3 shard, and back.

The format is Zarr's own (the ``sharding_indexed`` codec: tiles compressed by Blosc with a CRC-32C
each, then an index of offsets and lengths with its CRC-32C); Zarr itself reads and writes the same
bytes. Whole panels are handled here because a panel is one shard: there is nothing to merge with
what is there, and the panel's own checksum is taken from the bytes on their way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import BitRound, blosc

Block = np.ndarray[Any, np.dtype[Any]]

COMPRESSOR: dict[str, Any] = {"cname": "lz4", "clevel": 1, "shuffle": "bitshuffle"}
CHECKSUM_BYTES = 4


def encode(
    panel: Block, shard_shape: tuple[int, int], chunk_columns: int, keep_bits: int | None
) -> Iterator[bytes]:
    """The bytes of a shard, tile by tile and then the index.

    Parameters
    ----------
    panel : (r, n) float, r ≤ shard_shape[0] and n ≤ shard_shape[1]; the rest is padded with NaN
    shard_shape : rows and columns of a shard, a multiple of the tile's
    chunk_columns : columns of a tile, which has all rows
    keep_bits : mantissa bits to round to, None for all
    """
    rows = len(panel)
    tile = np.empty((shard_shape[0], chunk_columns), panel.dtype)
    index = []
    offset = 0
    for first in range(0, shard_shape[1], chunk_columns):
        part = panel[:, first : first + chunk_columns]
        if part.shape != tile.shape:
            tile[:] = np.nan
        tile[:rows, : part.shape[1]] = part
        made = tile if keep_bits is None else _rounded(tile, keep_bits)
        encoded = blosc.compress(
            made, COMPRESSOR["cname"].encode(), COMPRESSOR["clevel"], blosc.BITSHUFFLE
        )
        yield encoded
        yield _checksum(encoded)
        index.append((offset, len(encoded) + CHECKSUM_BYTES))
        offset += len(encoded) + CHECKSUM_BYTES
    table = np.array(index, "<u8").tobytes()
    yield table
    yield _checksum(table)


def decode(content: bytes, chunk_columns: int, shard_rows: int, out: Block) -> None:
    """Fill ``out`` (r, n), the first r rows, from the bytes of a shard whose checksum holds."""
    rows, n = out.shape
    n_tiles = -(-n // chunk_columns)
    table_bytes = 16 * n_tiles
    end = len(content) - CHECKSUM_BYTES
    index = np.frombuffer(content[end - table_bytes : end], "<u8").reshape(n_tiles, 2)
    tile = np.empty((shard_rows, chunk_columns), out.dtype)
    view = memoryview(content)
    for i, (offset, length) in enumerate(index.tolist()):
        blosc.decompress(view[offset : offset + length - CHECKSUM_BYTES], tile)
        first = i * chunk_columns
        out[:, first : first + chunk_columns] = tile[:rows, : n - first]


def _rounded(tile: Block, keep_bits: int) -> Block:
    rounded: Block = BitRound(keep_bits).encode(tile).view(tile.dtype).reshape(tile.shape)
    # Next to the largest number, rounding up would leave the numbers.
    np.copyto(rounded, tile, where=np.isinf(rounded))
    return rounded


def _checksum(content: bytes) -> bytes:
    return int(google_crc32c.value(content)).to_bytes(CHECKSUM_BYTES, "little")
