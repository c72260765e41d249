"""Sums over features for a block of pairs of points at once, all held in vector registers.

Written as LLVM vector code, as in `silchunk.kernels.vectors`: a block is as wide as the registers
of this processor allow, and every sum is formed by the same operations in the same order whatever
the block it falls into.
"""

from __future__ import annotations

from typing import Any

import numba  # noqa: F401 (whole before parts of it: threads load kernels side by side)
import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic, register_jitable

from silchunk.kernels.distance import SUMMED_FEATURES, Block
from silchunk.kernels.vectors import ELEMENTS, in_every_lane

# Rows of a block, and what the number of columns of a tile is a multiple of: whole blocks of
# either dtype.
ROWS = 4
COLUMNS = 64
LINE_BYTES = 64


def _registers() -> tuple[int, int]:
    """Bytes of the widest register, and how many of them a row of a block takes: sums fill half of
    the registers there are, 32 of AVX-512 or NEON and 16 of AVX2."""
    features = config.CPU_FEATURES or binding.get_host_cpu_features().flatten()
    return (64, 4) if "+avx512f" in features else (32, 2)


REGISTER_BYTES, REGISTERS = _registers()
WIDE = REGISTER_BYTES == 64


def _lanes(dtype: Any) -> int:
    return REGISTER_BYTES * 8 // int(dtype.bitwidth)


def _constant(of: Any) -> Any:
    """An intrinsic that tells a number by an array's dtype, known when a kernel is compiled."""

    def number(typing_context: Any, values: Any) -> Any:
        value = of(values.dtype)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return context.get_constant(types.intp, value)

        return types.intp(values), generate

    return intrinsic(number)


# Values of a register, and columns of a block, of the dtype of an array.
block_lanes = _constant(_lanes)
block_columns = _constant(lambda dtype: REGISTERS * _lanes(dtype))


@register_jitable  # type: ignore[untyped-decorator]
def at_a_cache_line(count: int, width: int, like: Block) -> Block:
    """Uninitialised rows (count, width) of the dtype of ``like``, C-contiguous; where ``width`` is
    a multiple of COLUMNS, no vector of theirs lies across two cache lines."""
    buffer = np.empty(count * width + LINE_BYTES // like.itemsize, like.dtype)
    first = -buffer.ctypes.data % LINE_BYTES // like.itemsize
    return buffer[first : first + count * width].reshape((count, width))


class _Block:
    """Code for one block, and what it is made of."""

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        self._context, self.builder = context, builder
        self.lanes = _lanes(dtype)
        self.vector = ir.VectorType(ELEMENTS[dtype], self.lanes)
        self.wide = ir.VectorType(ir.DoubleType(), self.lanes)

    def array(self, kind: Any, value: Any) -> Any:
        return self._context.make_array(kind)(self._context, self.builder, value)

    def width(self, array: Any) -> Any:
        """Columns of an array."""
        return cgutils.unpack_tuple(self.builder, array.shape)[1]

    def at(self, array: Any, offset: Any, kind: Any) -> Any:
        """Where a vector begins."""
        return self.builder.bitcast(self.builder.gep(array.data, [offset]), kind.as_pointer())

    def sums(
        self, rows: Any, i: Any, columns: Any, j: Any, term: Any, summed: int | None
    ) -> list[Any]:
        """Vectors of sums over all features, row by row, for rows from i and columns from j on; the
        builder then stands where they are known.

        ``term(builder, x, y, total)`` gives the total with what one feature adds to it. Of
        ``summed`` features at a time a sum is formed, and these are added up; of all at once if it
        is None.
        """
        builder, vector, integer = self.builder, self.vector, i.type
        zero = ir.Constant(vector, [0.0] * self.lanes)
        alignment = REGISTER_BYTES // self.lanes
        n_features, n_columns = self.width(rows), self.width(columns)

        def constant(value: int) -> Any:
            return ir.Constant(integer, value)

        def phis(before: Any) -> list[Any]:
            made = [builder.phi(vector) for _ in range(ROWS * REGISTERS)]
            for phi in made:
                phi.add_incoming(zero, before)
            return made

        starts = [builder.mul(builder.add(i, constant(r)), n_features) for r in range(ROWS)]
        entry = builder.block
        some = builder.append_basic_block("some_features")
        loop = builder.append_basic_block("features")
        summed_up = builder.append_basic_block("summed")
        done = builder.append_basic_block("block")
        builder.branch(some)

        builder.position_at_end(some)
        first = builder.phi(integer)
        first.add_incoming(constant(0), entry)
        totals = phis(entry)
        last = n_features
        if summed is not None:
            following = builder.add(first, constant(summed))
            fewer = builder.icmp_signed("<", following, n_features)
            last = builder.select(fewer, following, n_features)
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(integer)
        k.add_incoming(first, some)
        partial = phis(some)
        start = builder.add(builder.mul(k, n_columns), j)
        offsets = [builder.add(start, constant(v * self.lanes)) for v in range(REGISTERS)]
        ys = [builder.load(self.at(columns, o, vector), align=alignment) for o in offsets]
        added = []
        for r in range(ROWS):
            x = builder.load(builder.gep(rows.data, [builder.add(starts[r], k)]))
            spread = in_every_lane(builder, x, vector)
            own = partial[r * REGISTERS : (r + 1) * REGISTERS]
            added += [term(builder, spread, y, so_far) for y, so_far in zip(ys, own, strict=True)]
        k_then = builder.add(k, constant(1))
        k.add_incoming(k_then, loop)
        for phi, total in zip(partial, added, strict=True):
            phi.add_incoming(total, loop)
        builder.cbranch(builder.icmp_signed("<", k_then, last), loop, summed_up)

        builder.position_at_end(summed_up)
        first.add_incoming(last, summed_up)
        results = [builder.fadd(*pair) for pair in zip(totals, added, strict=True)]
        for phi, total in zip(totals, results, strict=True):
            phi.add_incoming(total, summed_up)
        builder.cbranch(builder.icmp_signed("<", last, n_features), some, done)
        builder.position_at_end(done)
        return results

    def function(self, name: str, kind: Any, *parameters: Any) -> Any:
        """One of LLVM's own, for vectors."""
        vector = parameters[-1]
        bits = 32 if isinstance(vector.element, ir.FloatType) else 64
        return cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(kind, parameters),
            f"llvm.{name}.v{vector.count}f{bits}",
        )

    def as_wide(self, values: Any) -> Any:
        """A vector in float64."""
        return values if self.wide == self.vector else self.builder.fpext(values, self.wide)

    def parted(self, line: list[Any], split: Any) -> tuple[list[Any], list[Any]]:
        """Vectors of a line of the block with zeros from column ``split`` on, and before it."""
        integers = ir.VectorType(split.type, self.lanes)
        limit = in_every_lane(self.builder, split, integers)
        none = ir.Constant(self.wide, [0.0] * self.lanes)
        before, beyond = [], []
        for nth, values in enumerate(line):
            places = range(nth * self.lanes, (nth + 1) * self.lanes)
            mask = self.builder.icmp_signed("<", ir.Constant(integers, list(places)), limit)
            before.append(self.builder.select(mask, values, none))
            beyond.append(self.builder.select(mask, none, values))
        return before, beyond

    def add_at(self, array: Any, start: Any, nth: int, total: Any) -> None:
        """Add to the ``nth`` vector of an array from ``start`` on."""
        builder = self.builder
        offset = builder.add(start, ir.Constant(start.type, nth * self.lanes))
        at = self.at(array, offset, self.wide)
        builder.store(builder.fadd(builder.load(at, align=8), total), at, align=8)

    def root(self, square: Any) -> Any:
        """The square root of a vector without zeros, off by less than a unit in the last place.

        Of AVX-512 float32 by an estimate of its inverse with a Newton step, which is done in half
        the time of an exact root.
        """
        builder, vector = self.builder, self.vector
        if not (WIDE and isinstance(vector.element, ir.FloatType)):
            return builder.call(self.function("sqrt", vector, vector), [square])
        mask = ir.IntType(self.lanes)
        kind = ir.FunctionType(vector, [vector, vector, mask])
        name = "llvm.x86.avx512.rsqrt14.ps.512"
        estimate = cgutils.get_or_insert_function(builder.module, kind, name)
        unset = ir.Constant(vector, ir.Undefined)
        inverse = builder.call(estimate, [square, unset, ir.Constant(mask, -1)])
        fma = self.function("fma", vector, vector, vector, vector)
        root = builder.fmul(square, inverse)
        one, half = (ir.Constant(vector, [value] * self.lanes) for value in (1.0, 0.5))
        error = builder.call(fma, [builder.fneg(root), inverse, one])
        return builder.call(fma, [builder.fmul(root, half), error, root])

    def least(self, vectors: list[Any]) -> Any:
        """The least value of them all; compiled away where nobody asks."""
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [
                self.builder.select(self.builder.fcmp_ordered("<", one, other), one, other)
                for one, other in pairs
            ]
        least = self.function("vector.reduce.fmin", self.vector.element, self.vector)
        return self.builder.call(least, vectors, fastmath=("nnan", "nsz"))


def _filling(term: Any, summed: int | None) -> Any:
    """An intrinsic that fills a block of ``sums``."""

    def fill(
        typing_context: Any, rows: Any, i: Any, columns: Any, j: Any, sums: Any, p: Any, q: Any
    ) -> Any:
        signature = sums.dtype(rows, i, columns, j, sums, p, q)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            block = _Block(context, builder, rows.dtype)
            sources, columns_, into = (
                block.array(signature.args[t], arguments[t]) for t in (0, 2, 4)
            )
            i, j, p, q = (arguments[t] for t in (1, 3, 5, 6))
            results = block.sums(sources, i, columns_, j, term, summed)
            for r in range(ROWS):
                row = builder.add(p, ir.Constant(p.type, r))
                start = builder.add(builder.mul(row, block.width(into)), q)
                for v in range(REGISTERS):
                    offset = builder.add(start, ir.Constant(p.type, v * block.lanes))
                    at = block.at(into, offset, block.vector)
                    builder.store(results[r * REGISTERS + v], at, align=rows.dtype.bitwidth // 8)
            return block.least(results)

        return signature, generate

    return intrinsic(fill)


def _square(builder: Any, x: Any, y: Any, total: Any) -> Any:
    difference = builder.fsub(x, y)
    return _product(builder, difference, difference, total)


def _product(builder: Any, x: Any, y: Any, total: Any) -> Any:
    product = builder.fmul(x, y, flags=("contract",))
    return builder.fadd(product, total, flags=("contract",))


# ``fill_squares(rows, i, columns, j, sums, p, q)``: of rows from i on and columns from j on,
# ``sums[p:p+ROWS, q:q+w] = Σ (rows[·, k] - columns[k, ·])²``, w what `block_columns` says; returns
# the least of them. ``rows`` (r, d), ``columns`` (d, c) and ``sums`` are C-contiguous and of one
# dtype, d ≥ 1.
fill_squares = _filling(_square, SUMMED_FEATURES)
# The same of ``Σ rows[·, k] columns[k, ·]``.
fill_products = _filling(_product, None)


def _adding(parted: bool) -> Any:
    """An intrinsic that adds up the roots of squares; where ``parted``, of two segments."""

    def add(
        typing_context: Any,
        rows: Any,
        i: Any,
        columns: Any,
        j: Any,
        floor: Any,
        factor: Any,
        along: Any,
        beyond: Any,
        split: Any,
        by_column: Any,
        t: Any,
    ) -> Any:
        signature = types.boolean(
            rows, i, columns, j, floor, factor, along, beyond, split, by_column, t
        )

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            block = _Block(context, builder, rows.dtype)
            sources, columns_, along, beyond, across = (
                block.array(signature.args[t], arguments[t]) for t in (0, 2, 6, 7, 9)
            )
            _, i, _, j, floor, factor, _, _, split, _, t = arguments
            results = block.sums(sources, i, columns_, j, _square, SUMMED_FEATURES)
            clear = builder.fcmp_ordered(">=", block.least(results), floor)
            with builder.if_then(clear):
                roots = [block.as_wide(block.root(square)) for square in results]
                for r in range(ROWS):
                    line = roots[r * REGISTERS : (r + 1) * REGISTERS]
                    if parted:
                        line, others = block.parted(line, split)
                        block.add_at(beyond, ir.Constant(i.type, 0), r, _added(builder, others))
                    block.add_at(along, ir.Constant(i.type, 0), r, _added(builder, line))
                start = builder.add(builder.mul(t, block.width(across)), j)
                times = in_every_lane(builder, factor, block.wide)
                for v in range(REGISTERS):
                    total = builder.fmul(_added(builder, roots[v::REGISTERS]), times)
                    block.add_at(across, start, v, total)
            return clear

        return signature, generate

    return intrinsic(add)


def _added(builder: Any, vectors: list[Any]) -> Any:
    """The sum of vectors, by pairs."""
    while len(vectors) > 1:
        vectors = [builder.fadd(*pair) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


# ``add_roots(rows, i, columns, j, floor, factor, along, beyond, split, by_column, t)`` adds up the
# roots of `fill_squares`, unless a square is below ``floor``; returns whether it did. The sum of
# row r of ``along`` (ROWS, l) float64, l what `block_lanes` says, grows by the roots of row i + r.
# Sums across the block are multiplied by ``factor`` and added to ``by_column[t, j:j+w]``,
# C-contiguous float64. ``floor`` is of the dtype of the points.
add_roots = _adding(parted=False)
# The same where roots of columns from j + ``split`` on are added to ``beyond``, which is like
# ``along``, instead.
add_parted_roots = _adding(parted=True)
