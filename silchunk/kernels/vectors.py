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

# Values whose running sums are formed side by side.
SCANNED = 8

ELEMENTS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


def _in_every_lane(builder: Any, value: Any, vector: Any) -> Any:
    unset = ir.Constant(vector, ir.Undefined)
    first = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    single = builder.insert_element(unset, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, unset, first)


@intrinsic  # type: ignore[untyped-decorator]
def add_squares(
    typing_context: Any, rows: Any, columns: Any, sums: Any, i: Any, j: Any, first: Any, last: Any
) -> Any:
    """``sums[i:i+ROWS, j:j+COLUMNS] += Σ (rows[·, k] - columns[k, ·])²`` over k in [first, last).

    ``rows`` (r, d), ``columns`` (d, c) and ``sums`` (r, c) are C-contiguous and of one dtype; the
    sums start at k = 0.
    """
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
        totals = [[builder.phi(vector) for _ in range(VECTORS)] for _ in range(ROWS)]
        column_start = builder.add(builder.mul(k, widths[1]), j)
        values = []
        for v in range(VECTORS):
            at = vector_at(arrays[1], builder.add(column_start, constant(v * LANES)))
            values.append(builder.load(at, align=alignment))
        added = []
        for r in range(ROWS):
            x = builder.load(builder.gep(arrays[0].data, [builder.add(row_starts[r], k)]))
            spread = _in_every_lane(builder, x, vector)
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
        edges = _in_every_lane(builder, edge, vector)
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
            return _in_every_lane(builder, value, vector)

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


@intrinsic  # type: ignore[untyped-decorator]
def three_smallest(
    typing_context: Any, values: Any, count: Any, j: Any, smallest: Any, labels: Any, first: Any
) -> Any:
    """The three smallest of ``values[k, i]`` over k < count, for each i in [j, j + LANES), into
    ``smallest[:, first + i]``, and the k of the first two into ``labels[:, first + i]``; of equals
    the first.

    ``values`` (at least count ≥ 1, r) and ``smallest`` (3, r) are C-contiguous and of one dtype,
    ``labels`` (2, r) is int32. Where there are fewer than three, infinity and 0 stand.
    """
    signature = types.void(values, count, j, smallest, labels, first)
    element = ELEMENTS[values.dtype]
    vector, integers = ir.VectorType(element, LANES), ir.VectorType(ir.IntType(32), LANES)
    alignment = values.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, smallest, labels = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 3, 4)
        )
        _, count, j, _, _, first = arguments
        width = cgutils.unpack_tuple(builder, source.shape)[1]
        integer = j.type
        infinite = ir.Constant(vector, [float("inf")] * LANES)
        zero = ir.Constant(integers, [0] * LANES)

        before = builder.block
        loop = builder.append_basic_block("candidates")
        after = builder.append_basic_block("ranked")
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(integer)
        best, second, third = (builder.phi(vector) for _ in range(3))
        nearest, following = (builder.phi(integers) for _ in range(2))
        place = builder.add(builder.mul(k, width), j)
        at = builder.bitcast(builder.gep(source.data, [place]), vector.as_pointer())
        value = builder.load(at, align=alignment)
        label = _in_every_lane(builder, builder.trunc(k, ir.IntType(32)), integers)

        def below(limit: Any) -> Any:
            return builder.fcmp_ordered("<", value, limit)

        nearer, near, close = below(best), below(second), below(third)
        third_then = builder.select(near, second, builder.select(close, value, third))
        second_then = builder.select(nearer, best, builder.select(near, value, second))
        best_then = builder.select(nearer, value, best)
        following_then = builder.select(nearer, nearest, builder.select(near, label, following))
        nearest_then = builder.select(nearer, label, nearest)
        k_then = builder.add(k, ir.Constant(integer, 1))
        for phi, start, result in (
            (k, ir.Constant(integer, 0), k_then),
            (best, infinite, best_then),
            (second, infinite, second_then),
            (third, infinite, third_then),
            (nearest, zero, nearest_then),
            (following, zero, following_then),
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(result, loop)
        builder.cbranch(builder.icmp_signed("<", k_then, count), loop, after)

        builder.position_at_end(after)

        target = builder.add(first, j)

        def store(values: list[Any], array: Any, kind: Any, align: int) -> None:
            row = cgutils.unpack_tuple(builder, array.shape)[1]
            for i, value in enumerate(values):
                place = builder.add(builder.mul(ir.Constant(integer, i), row), target)
                at = builder.bitcast(builder.gep(array.data, [place]), kind.as_pointer())
                builder.store(value, at, align=align)

        store([best_then, second_then, third_then], smallest, vector, alignment)
        store([nearest_then, following_then], labels, integers, 4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator]
def transpose_square(
    typing_context: Any, points: Any, i: Any, k: Any, shift: Any, columns: Any, j: Any
) -> Any:
    """``columns[k + l, j + m] = points[i + m, k + l] - shift[k + l]`` for l, m < LANES.

    ``points`` (r, d), ``shift`` (d,) and ``columns`` (d, c) are C-contiguous and of one dtype.
    """
    signature = types.void(points, i, k, shift, columns, j)
    vector = ir.VectorType(ELEMENTS[points.dtype], LANES)
    alignment = points.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, offset, target = (
            context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 3, 4)
        )
        _, i, k, _, _, j = arguments
        integer = i.type

        def place(array: Any, row: Any, column: Any) -> Any:
            width = cgutils.unpack_tuple(builder, array.shape)[-1]
            start = builder.add(builder.mul(row, width), column)
            return builder.bitcast(builder.gep(array.data, [start]), vector.as_pointer())

        def nth(value: Any, n: int) -> Any:
            return builder.add(value, ir.Constant(integer, n))

        at = builder.bitcast(builder.gep(offset.data, [k]), vector.as_pointer())
        middle = builder.load(at, align=alignment)
        rows = [
            builder.fsub(builder.load(place(source, nth(i, m), k), align=alignment), middle)
            for m in range(LANES)
        ]
        # Squares of 2, 4, 8 and 16 are transposed, one inside the other.
        step = 1
        while step < LANES:
            lower = [n if not n & step else LANES + n - step for n in range(LANES)]
            upper = [n + step if not n & step else LANES + n for n in range(LANES)]
            masks = [
                ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes) for lanes in (lower, upper)
            ]
            for m in range(LANES):
                if not m & step:
                    one, other = rows[m], rows[m + step]
                    rows[m], rows[m + step] = (
                        builder.shuffle_vector(one, other, mask) for mask in masks
                    )
            step *= 2
        for n, row in enumerate(rows):
            builder.store(row, place(target, nth(k, n), j), align=alignment)
        return context.get_dummy_value()

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator]
def fetch(typing_context: Any, values: Any, i: Any) -> Any:
    """Ask for the cache line of ``values`` that holds row i's first value, before it is read."""
    signature = types.void(values, i)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        flag, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        at = builder.bitcast(builder.gep(source.data, [arguments[1]]), byte)
        # To be read, kept in all caches, data.
        builder.call(function, [at, *(ir.Constant(flag, value) for value in (0, 3, 1))])
        return context.get_dummy_value()

    return signature, generate
