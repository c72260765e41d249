"""Sums of squared differences in vector registers: Euclidean distance without a matrix product.

``Σ (x - y)²`` by differences never cancels, so it may run in the precision of the points, where
one instruction handles twice as many float32 values as a float64 product does. The innermost loop
is written as LLVM vector code: a block of ROWS × (VECTORS · LANES) sums stays in registers, which
numba's own vectoriser does not do. LLVM cuts the vectors to what the processor has.

Every sum is formed by the same operations in the same order, whatever its place in a tile: the
distance from x to y has the bits of that from y to x, in any tile.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from silchunk.kernels.distance import FLOAT32_FLOOR, Block, compiled, difference_norm

ROWS = 4
VECTORS = 2
LANES = 16
# Tiles are padded to whole register blocks.
COLUMNS = VECTORS * LANES
# Features summed in registers at a time: each such sum is rounded this often, and their sum once
# for each of them.
FEATURES = 16


def relative_error(n_features: int, dtype: np.dtype[Any], squared: bool) -> float:
    """Largest relative error of a distance, or of a squared one, formed in ``dtype``.

    A difference is off by u, its square by 2u and one more where the processor has no fused
    multiply-add; sums of positive terms by u for each addition; the root halves all of that and
    adds its own.
    """
    roundings = 3 + FEATURES + -(-n_features // FEATURES)
    unit_roundoff = float(np.finfo(dtype).eps) / 2
    return (roundings if squared else roundings / 2 + 1) * unit_roundoff


@intrinsic  # type: ignore[untyped-decorator]
def _add_squares(
    typing_context: Any, rows: Any, columns: Any, sums: Any, i: Any, j: Any, first: Any, last: Any
) -> Any:
    """``sums[i:i+ROWS, j:j+COLUMNS] += Σ (rows[·, k] - columns[k, ·])²`` over k in [first, last).

    ``rows`` (r, d), ``columns`` (d, c) and ``sums`` (r, c) are C-contiguous and of one dtype; the
    sums start at k = 0.
    """
    signature = types.void(rows, columns, sums, i, j, first, last)
    element = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}[rows.dtype]
    vector = ir.VectorType(element, LANES)
    picks_first = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    unset = ir.Constant(vector, ir.Undefined)
    alignment = rows.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
        ]
        widths = [cgutils.unpack_tuple(builder, array.shape)[1] for array in arrays]
        i, j, first, last = arguments[3:]
        integer = first.type

        def constant(value: int) -> Any:
            return ir.Constant(integer, value)

        def vector_at(array: Any, offset: Any) -> Any:
            return builder.bitcast(builder.gep(array.data, [offset]), vector.as_pointer())

        def in_every_lane(value: Any) -> Any:
            single = builder.insert_element(unset, value, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(single, unset, picks_first)

        row_starts = [builder.mul(builder.add(i, constant(r)), widths[0]) for r in range(ROWS)]
        before = builder.block
        loop = builder.append_basic_block("features")
        after = builder.append_basic_block("store")
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(integer)
        totals = [[builder.phi(vector) for _ in range(VECTORS)] for _ in range(ROWS)]
        column_start = builder.add(builder.mul(k, widths[1]), j)
        values = []
        for v in range(VECTORS):
            at = vector_at(arrays[1], builder.add(column_start, constant(v * LANES)))
            values.append(builder.load(at, align=alignment))
        added = []
        for r in range(ROWS):
            x = builder.load(builder.gep(arrays[0].data, [builder.add(row_starts[r], k)]))
            spread = in_every_lane(x)
            for v in range(VECTORS):
                difference = builder.fsub(spread, values[v])
                square = builder.fmul(difference, difference, flags=("contract",))
                added.append(builder.fadd(square, totals[r][v], flags=("contract",)))
        following = builder.add(k, constant(1))
        k.add_incoming(first, before)
        k.add_incoming(following, loop)
        for total, sum_ in zip([t for row in totals for t in row], added, strict=True):
            total.add_incoming(ir.Constant(vector, [0.0] * LANES), before)
            total.add_incoming(sum_, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, after)

        builder.position_at_end(after)
        begins = builder.icmp_signed("==", first, constant(0))
        for r in range(ROWS):
            start = builder.add(builder.mul(builder.add(i, constant(r)), widths[2]), j)
            for v in range(VECTORS):
                at = vector_at(arrays[2], builder.add(start, constant(v * LANES)))
                so_far = builder.load(at, align=alignment)
                sum_ = added[r * VECTORS + v]
                sum_ = builder.select(begins, sum_, builder.fadd(sum_, so_far))
                builder.store(sum_, at, align=alignment)
        return context.get_dummy_value()

    return signature, generate


@compiled  # type: ignore[untyped-decorator]
def square_sums(rows: Block, columns: Block, sums: Block) -> None:
    """``sums`` (r, c) = Σ (x - y)² of rows (r, d) and columns (d, c), all C-contiguous.

    r is a multiple of ROWS, c of COLUMNS, d at least 1.
    """
    n_features = rows.shape[1]
    for i in range(0, rows.shape[0], ROWS):
        for j in range(0, columns.shape[1], COLUMNS):
            for first in range(0, n_features, FEATURES):
                _add_squares(rows, columns, sums, i, j, first, min(n_features, first + FEATURES))


@compiled  # type: ignore[untyped-decorator]
def scale_transposed(block: Block, anchor: Block, scale: float, values: Block) -> None:
    """``values`` (d, c) = (block (c, d) - anchor)·scale, transposed; columns past c are zero.

    ``anchor`` is zero but for features that are constant: every other feature spans at least a
    unit in the last place of its values, so that ``scale`` cannot take these out of range.
    """
    factor = values.dtype.type(scale)
    for first in range(0, values.shape[1], 16):
        last = min(first + 16, block.shape[0])
        for k in range(values.shape[0]):
            middle = values.dtype.type(anchor[k])
            for j in range(first, last):
                values[k, j] = (values.dtype.type(block[j, k]) - middle) * factor
            for j in range(max(first, last), min(first + 16, values.shape[1])):
                values[k, j] = 0


@compiled  # type: ignore[untyped-decorator]
def finish_sums(
    sums: Block,
    rows: Block,
    columns: Block,
    scale: float,
    squared: bool,
    panel: Block,
    first: int,
) -> None:
    """Write the distances of one tile into ``panel`` from column ``first`` on.

    ``sums`` (at least r, c) are of scaled points, ``rows`` (r, d) and ``columns`` (c, d) the points
    as given, from which sums that have lost digits to underflow are formed again.
    """
    unscale = 1.0 / scale
    factor = panel.dtype.type(unscale)
    factor_squared = unscale * unscale
    floor = sums.dtype.type(FLOAT32_FLOOR)
    for i in range(rows.shape[0]):
        out = panel[i, first : first + columns.shape[0]]
        close = 0
        if squared:
            for j in range(columns.shape[0]):
                close += sums[i, j] < floor
                out[j] = sums[i, j] * factor_squared
        else:
            for j in range(columns.shape[0]):
                close += sums[i, j] < floor
                out[j] = panel.dtype.type(math.sqrt(sums[i, j])) * factor
        if close:
            for j in range(columns.shape[0]):
                if sums[i, j] < floor:
                    length = difference_norm(rows[i], columns[j], scale) * unscale
                    out[j] = length * length if squared else length
