"""What a pass of a centroid algorithm does with sixteen values at a time, but for its products:
LLVM vector code, as in `silchunk.kernels.vectors`."""

from __future__ import annotations

from typing import Any

import numba  # noqa: F401 (whole before parts of it: threads load kernels side by side)
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from silchunk.kernels.vectors import ELEMENTS, LANES, in_every_lane


@intrinsic  # type: ignore[untyped-decorator]
def three_smallest(
    typing_context: Any, values: Any, count: Any, j: Any, smallest: Any, labels: Any
) -> Any:
    """The three smallest of ``values[k, i]`` over k < count, for each i in [j, j + LANES), into
    ``smallest[:, i]``, and the k of the first two into ``labels[:, i]``; of equals the first.

    ``values`` (at least count ≥ 1, r) and ``smallest`` (3, r) are C-contiguous and of one dtype,
    ``labels`` (2, r) is int32. Where there are fewer than three, infinity and 0 stand.
    """
    signature = types.void(values, count, j, smallest, labels)
    element = ELEMENTS[values.dtype]
    vector, integers = ir.VectorType(element, LANES), ir.VectorType(ir.IntType(32), LANES)
    alignment = values.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, smallest, labels = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 3, 4)
        )
        _, count, j, _, _ = arguments
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
        label = in_every_lane(builder, builder.trunc(k, ir.IntType(32)), integers)

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

        def store(values: list[Any], array: Any, kind: Any, align: int) -> None:
            row = cgutils.unpack_tuple(builder, array.shape)[1]
            for i, value in enumerate(values):
                place = builder.add(builder.mul(ir.Constant(integer, i), row), j)
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


@intrinsic  # type: ignore[untyped-decorator]
def add_weighted(
    typing_context: Any,
    points: Any,
    i: Any,
    origin: Any,
    weight: Any,
    totals: Any,
    label: Any,
    last: Any,
) -> Any:
    """``totals[label, k] += weight (points[i, k] - origin[k])`` in float64, for k < last.

    ``points`` (r, d), ``origin`` (d,) and ``totals`` (K, at least d) are C-contiguous, the latter
    two float64; ``last`` is a whole number of LANES and at least one of them.
    """
    signature = types.void(points, i, origin, weight, totals, label, last)
    vector = ir.VectorType(ELEMENTS[points.dtype], LANES)
    wide = ir.VectorType(ir.DoubleType(), LANES)
    alignment = points.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, middle, target = (
            context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 2, 4)
        )
        _, i, _, weight, _, label, last = arguments
        integer = i.type

        def row(array: Any, index: Any) -> Any:
            width = cgutils.unpack_tuple(builder, array.shape)[1]
            return builder.gep(array.data, [builder.mul(index, width)])

        point, total = row(source, i), row(target, builder.sext(label, integer))
        weights = in_every_lane(builder, weight, wide)
        before = builder.block
        loop = builder.append_basic_block("features")
        after = builder.append_basic_block("added")
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(integer)
        at = builder.bitcast(builder.gep(point, [k]), vector.as_pointer())
        read = builder.load(at, align=alignment)
        value = read if alignment == 8 else builder.fpext(read, wide)
        at = builder.bitcast(builder.gep(middle.data, [k]), wide.as_pointer())
        difference = builder.fsub(value, builder.load(at, align=8))
        at = builder.bitcast(builder.gep(total, [k]), wide.as_pointer())
        product = builder.fmul(difference, weights, flags=("contract",))
        sum_ = builder.fadd(product, builder.load(at, align=8), flags=("contract",))
        builder.store(sum_, at, align=8)
        following = builder.add(k, ir.Constant(integer, LANES))
        k.add_incoming(ir.Constant(integer, 0), before)
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, after)

        builder.position_at_end(after)
        return context.get_dummy_value()

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator]
def two_squares(
    typing_context: Any,
    points: Any,
    i: Any,
    shift: Any,
    centres: Any,
    one: Any,
    other: Any,
    last: Any,
) -> Any:
    """Σ ((points[i, k] - shift[k]) - centres[c, k])² over k < last, for c ``one`` and ``other``.

    ``points`` (r, d), ``shift`` (d,) and ``centres`` (K, d) are C-contiguous and of one dtype, in
    which all is computed; ``last`` is a whole number of LANES and at least one of them.
    """
    outcome = types.Tuple((points.dtype, points.dtype))  # type: ignore[attr-defined]
    signature = outcome(points, i, shift, centres, one, other, last)
    element = ELEMENTS[points.dtype]
    vector = ir.VectorType(element, LANES)
    alignment = points.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, middle, places = (
            context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 2, 3)
        )
        _, i, _, _, one, other, last = arguments
        integer = i.type

        def row(array: Any, index: Any) -> Any:
            index = builder.sext(index, integer) if index.type != integer else index
            width = cgutils.unpack_tuple(builder, array.shape)[1]
            return builder.gep(array.data, [builder.mul(index, width)])

        point, pair = row(source, i), [row(places, one), row(places, other)]
        before = builder.block
        loop = builder.append_basic_block("features")
        after = builder.append_basic_block("summed")
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(integer)
        totals = [builder.phi(vector) for _ in pair]

        def load(start: Any) -> Any:
            at = builder.bitcast(builder.gep(start, [k]), vector.as_pointer())
            return builder.load(at, align=alignment)

        value = builder.fsub(load(point), load(middle.data))
        following = builder.add(k, ir.Constant(integer, LANES))
        sums = []
        for total, centre in zip(totals, pair, strict=True):
            difference = builder.fsub(value, load(centre))
            square = builder.fmul(difference, difference, flags=("contract",))
            sums.append(builder.fadd(square, total, flags=("contract",)))
            total.add_incoming(ir.Constant(vector, [0.0] * LANES), before)
            total.add_incoming(sums[-1], loop)
        k.add_incoming(ir.Constant(integer, 0), before)
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, after)

        builder.position_at_end(after)
        kind = ir.FunctionType(element, [element, vector])
        name = f"llvm.vector.reduce.fadd.v{LANES}f{points.dtype.bitwidth}"
        add = cgutils.get_or_insert_function(builder.module, kind, name)
        zero = ir.Constant(element, 0.0)
        results = [builder.call(add, [zero, sum_], fastmath=("reassoc",)) for sum_ in sums]
        return context.make_tuple(builder, signature.return_type, results)

    return signature, generate
