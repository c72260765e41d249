"""Innermost loops that numba's own vectoriser does not get to, written as LLVM vector code.

LLVM cuts the vectors to what the processor has, so this is as portable as numba itself.
"""

from __future__ import annotations

from typing import Any

import numba  # noqa: F401 (whole before parts of it: threads load kernels side by side)
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# Values of a vector: the widest registers hold so many float32.
LANES = 16

# Values whose running sums are formed side by side.
SCANNED = 8

ELEMENTS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


def in_every_lane(builder: Any, value: Any, vector: Any) -> Any:
    """The vector that has a scalar in each of its lanes."""
    unset = ir.Constant(vector, ir.Undefined)
    first = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    single = builder.insert_element(unset, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, unset, first)


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
