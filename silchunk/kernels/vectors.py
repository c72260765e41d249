"""Innermost loops that numba's own vectoriser does not get to, written as LLVM vector code.

LLVM cuts the vectors to what the processor has, so this is as portable as numba itself.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# Values of a vector: the widest registers hold so many float32.
LANES = 16
# Sums that `add_squares` holds in registers at once: ROWS × COLUMNS.
ROWS = 4
VECTORS = 2
COLUMNS = VECTORS * LANES
# A product takes one instruction where a square takes two: more of them hide their latency.
WIDE_VECTORS = 4
WIDE_COLUMNS = WIDE_VECTORS * LANES

# Values whose running sums are formed side by side.
SCANNED = 8

ELEMENTS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


def in_every_lane(builder: Any, value: Any, vector: Any) -> Any:
    """The vector that has a scalar in each of its lanes."""
    unset = ir.Constant(vector, ir.Undefined)
    first = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    single = builder.insert_element(unset, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, unset, first)


def _adding(term: Any, n_vectors: int) -> Any:
    """An intrinsic that adds sums over features in registers, of ROWS rows and ``n_vectors`` times
    LANES columns at once.

    ``term(builder, x, y, total)`` gives the total with what one feature adds to it.
    """

    def add(
        typing_context: Any,
        rows: Any,
        columns: Any,
        sums: Any,
        i: Any,
        j: Any,
        first: Any,
        last: Any,
    ) -> Any:
        signature = types.void(rows, columns, sums, i, j, first, last)
        vector = ir.VectorType(ELEMENTS[rows.dtype], LANES)
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

            row_starts = [builder.mul(builder.add(i, constant(r)), widths[0]) for r in range(ROWS)]
            before = builder.block
            loop = builder.append_basic_block("features")
            after = builder.append_basic_block("store")
            builder.branch(loop)

            builder.position_at_end(loop)
            k = builder.phi(integer)
            totals = [[builder.phi(vector) for _ in range(n_vectors)] for _ in range(ROWS)]
            column_start = builder.add(builder.mul(k, widths[1]), j)
            values = []
            for v in range(n_vectors):
                at = vector_at(arrays[1], builder.add(column_start, constant(v * LANES)))
                values.append(builder.load(at, align=alignment))
            added = []
            for r in range(ROWS):
                x = builder.load(builder.gep(arrays[0].data, [builder.add(row_starts[r], k)]))
                spread = in_every_lane(builder, x, vector)
                added += [term(builder, spread, values[v], totals[r][v]) for v in range(n_vectors)]
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
                for v in range(n_vectors):
                    at = vector_at(arrays[2], builder.add(start, constant(v * LANES)))
                    so_far = builder.load(at, align=alignment)
                    sum_ = added[r * n_vectors + v]
                    sum_ = builder.select(begins, sum_, builder.fadd(sum_, so_far))
                    builder.store(sum_, at, align=alignment)
            return context.get_dummy_value()

        return signature, generate

    return intrinsic(add)


def _square(builder: Any, x: Any, y: Any, total: Any) -> Any:
    difference = builder.fsub(x, y)
    return _product(builder, difference, difference, total)


def _product(builder: Any, x: Any, y: Any, total: Any) -> Any:
    product = builder.fmul(x, y, flags=("contract",))
    return builder.fadd(product, total, flags=("contract",))


# ``sums[i:i+ROWS, j:j+COLUMNS] += Σ (rows[·, k] - columns[k, ·])²`` over k in [first, last).
# ``rows`` (r, d), ``columns`` (d, c) and ``sums`` (r, c) are C-contiguous and of one dtype; sums
# start at k = 0.
add_squares = _adding(_square, VECTORS)
# The same of ``rows[·, k] columns[k, ·]``, and of WIDE_COLUMNS columns.
add_products = _adding(_product, WIDE_VECTORS)


@intrinsic  # type: ignore[untyped-decorator]
def split_block(
    typing_context: Any, values: Any, first: Any, last: Any, edge: Any, kept: Any, filled: Any
) -> Any:
    """Part ``values[first:last]`` at ``edge``, a whole number of LANES and at least one of them.

    Those below are appended to ``kept``, which has ``filled`` values already. Returns how many it
    has then, the sum of the others in float64, and the largest of all, at least 0. ``values`` and
    ``kept`` are contiguous and of one dtype, as is ``edge``.
    """
    outcome = types.Tuple((types.int64, types.float64, values.dtype))  # type: ignore[attr-defined]
    signature = outcome(values, first, last, edge, kept, filled)
    element = ELEMENTS[values.dtype]
    vector, wide = ir.VectorType(element, LANES), ir.VectorType(ir.DoubleType(), LANES)
    bits = values.dtype.bitwidth

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def function(name: str, result: Any, *parameters: Any) -> Any:
            kind = ir.FunctionType(result, parameters)
            return cgutils.get_or_insert_function(builder.module, kind, name)

        source, target = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 4)
        )
        _, first, last, edge, _, filled = arguments
        edges = in_every_lane(builder, edge, vector)
        zero, none = ir.Constant(vector, [0.0] * LANES), ir.Constant(wide, [0.0] * LANES)
        before = builder.block
        loop = builder.append_basic_block("parts")
        after = builder.append_basic_block("done")
        builder.branch(loop)

        builder.position_at_end(loop)
        t, count = builder.phi(first.type), builder.phi(filled.type)
        total, largest = builder.phi(wide), builder.phi(vector)
        at = builder.bitcast(builder.gep(source.data, [t]), vector.as_pointer())
        read = builder.load(at, align=bits // 8)
        below = builder.fcmp_ordered("<", read, edges)
        store = function(
            f"llvm.masked.compressstore.v{LANES}f{bits}",
            ir.VoidType(),
            vector,
            element.as_pointer(),
            below.type,
        )
        builder.call(store, [read, builder.gep(target.data, [count]), below])
        added = builder.zext(builder.ctpop(builder.bitcast(below, ir.IntType(LANES))), count.type)
        others = builder.select(below, zero, read)
        others = others if bits == 64 else builder.fpext(others, wide)
        following = builder.add(t, ir.Constant(t.type, LANES))
        above = builder.fcmp_ordered(">", read, largest)
        outcomes = (
            following,
            builder.add(count, added),
            builder.fadd(total, others),
            builder.select(above, read, largest),
        )
        starts = (first, filled, none, zero)
        for phi, start, result in zip((t, count, total, largest), starts, outcomes, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(result, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, after)

        builder.position_at_end(after)
        add = function(
            f"llvm.vector.reduce.fadd.v{LANES}f64", ir.DoubleType(), ir.DoubleType(), wide
        )
        greatest = function(f"llvm.vector.reduce.fmax.v{LANES}f{bits}", element, vector)
        _, count_then, total_then, largest_then = outcomes
        start = ir.Constant(ir.DoubleType(), 0.0)
        results = (
            count_then,
            builder.call(add, [start, total_then], fastmath=("reassoc",)),
            builder.call(greatest, [largest_then], fastmath=("nnan", "nsz")),
        )
        return context.make_tuple(builder, signature.return_type, results)

    return signature, generate


def _running_sums(builder: Any, read: Any, total: Any) -> tuple[Any, Any]:
    """Σ of all before this vector and in it left of each lane, and ``total`` with all of it added.

    Sums of two, four and eight are formed side by side, so that only one addition in SCANNED waits
    for the one before it.
    """
    zero = ir.Constant(total.type, [0.0] * SCANNED)

    def picked(value: Any, lanes: list[int]) -> Any:
        """Lanes of ``value``, and from SCANNED on zeros."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), SCANNED), lanes)
        return builder.shuffle_vector(value, zero, mask)

    def moved(value: Any, by: int) -> Any:
        return picked(value, [SCANNED] * by + list(range(SCANNED - by)))

    scan = read if read.type == total.type else builder.fpext(read, total.type)
    for by in (1, 2, 4):
        scan = builder.fadd(scan, moved(scan, by))
    left = builder.fadd(total, moved(scan, 1))
    return left, builder.fadd(total, picked(scan, [SCANNED - 1] * SCANNED))


@intrinsic  # type: ignore[untyped-decorator]
def running_quotients(
    typing_context: Any,
    values: Any,
    first: Any,
    last: Any,
    n: Any,
    before: Any,
    inside: Any,
    after: Any,
    quotients: Any,
) -> Any:
    """``quotients[k - first]`` = (own (n - k)) / (rest (k - 1)) for k in [first, last), where

        left = Σ ``values[first:k]``,  own = before + left,  rest = after + (inside - left).

    A whole number of SCANNED values, and at least one of them, all in float64; returns the sum of
    them all. Sums and divisions are in one loop, since they keep different units of the processor
    busy.
    """
    signature = types.float64(values, first, last, n, before, inside, after, quotients)
    read_as = ir.VectorType(ELEMENTS[values.dtype], SCANNED)
    vector = ir.VectorType(ir.DoubleType(), SCANNED)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 7)
        )
        _, first, last, n, *sums, _ = arguments

        def everywhere(value: Any) -> Any:
            return in_every_lane(builder, value, vector)

        before_all, inside, after_all = (everywhere(value) for value in sums)
        sizes = everywhere(builder.sitofp(first, ir.DoubleType()))
        sizes = builder.fadd(sizes, ir.Constant(vector, [float(t) for t in range(SCANNED)]))
        all_points = everywhere(builder.sitofp(n, ir.DoubleType()))
        zero, one = (ir.Constant(vector, [value] * SCANNED) for value in (0.0, 1.0))

        entry = builder.block
        loop = builder.append_basic_block("scan")
        done = builder.append_basic_block("scanned")
        builder.branch(loop)

        builder.position_at_end(loop)
        t, k, total = builder.phi(first.type), builder.phi(vector), builder.phi(vector)
        at = builder.bitcast(builder.gep(source.data, [t]), read_as.as_pointer())
        read = builder.load(at, align=values.dtype.bitwidth // 8)
        left, total_then = _running_sums(builder, read, total)
        own = builder.fadd(before_all, left)
        rest = builder.fadd(after_all, builder.fsub(inside, left))
        # S_{k-1}/(k-1) : R_k/(n-k), as one division.
        quotient = builder.fdiv(
            builder.fmul(own, builder.fsub(all_points, k)),
            builder.fmul(rest, builder.fsub(k, one)),
        )
        place = builder.gep(target.data, [builder.sub(t, first)])
        builder.store(quotient, builder.bitcast(place, vector.as_pointer()), align=8)
        following = builder.add(t, ir.Constant(t.type, SCANNED))
        k_then = builder.fadd(k, ir.Constant(vector, [float(SCANNED)] * SCANNED))
        for phi, start, result in (
            (t, first, following),
            (k, sizes, k_then),
            (total, zero, total_then),
        ):
            phi.add_incoming(start, entry)
            phi.add_incoming(result, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, done)

        builder.position_at_end(done)
        return builder.extract_element(total_then, ir.Constant(ir.IntType(32), 0))

    return signature, generate
