"""Vectors of floats for kernels that numba compiles: it would not keep its own in registers.

Each function here is one for compiled code. All arguments but a `scale` are integers: addresses in bytes, and sizes,
strides and offsets in floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

LANES, HELD = (16, 4) if binding.get_host_cpu_features().get("avx512f") else (8, 2)
"""Floats of a vector, with AVX-512 or AVX2, and vectors of keys, or of a value, that are added up together."""
KEYS = 64
"""Keys that are weighed together."""
ROWS = 4
"""Queries whose scores, or values, are added up together: of HELD vectors for each there is room in registers."""
COLUMNS, VECTORS = HELD * LANES, KEYS // LANES
HALVES = tuple(half for half in (8, 4, 2, 1) if half < LANES)
FLOAT_BYTES, SLOT_BYTES = 4, 8

compiled: Callable[[Callable[..., Any]], Any] = intrinsic
"""Of a function that says what is to be written, one for compiled code."""


class _Code:
    """Writes vectors of LANES floats into the function being compiled. Addresses are integers, offsets in floats."""

    FLOAT, INT, ADDRESS = ir.FloatType(), ir.IntType(32), ir.IntType(64)
    FLOATS, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.b = builder
        kind = ir.FunctionType(self.FLOATS, [self.FLOATS] * 3)
        name = f"llvm.fma.v{LANES}f32"
        self._fma = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)

    @staticmethod
    def number(value: int) -> Any:
        """An integer for addresses and offsets."""
        return ir.Constant(_Code.ADDRESS, value)

    def constant(self, value: float) -> Any:
        """A vector of one constant."""
        return ir.Constant(self.FLOATS, [value] * LANES)

    def pointer(self, address: Any, offset: Any, kind: Any) -> Any:
        """Where a value of some kind stands."""
        place = self.b.add(address, self.b.mul(offset, self.number(FLOAT_BYTES)))
        return self.b.inttoptr(place, kind.as_pointer())

    def load(self, address: Any, offset: Any) -> Any:
        """The vector that begins there."""
        return self.b.load(self.pointer(address, offset, self.FLOATS), align=FLOAT_BYTES)

    def store(self, vector: Any, address: Any, offset: Any) -> None:
        """Write a vector there."""
        self.b.store(vector, self.pointer(address, offset, self.FLOATS), align=FLOAT_BYTES)

    def float_at(self, address: Any, offset: Any) -> Any:
        """The float that stands there."""
        return self.b.load(self.pointer(address, offset, self.FLOAT))

    def broadcast(self, value: Any) -> Any:
        """A vector of one float or short integer."""
        one = self.b.insert_element(
            ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined), value, ir.Constant(self.INT, 0)
        )
        return self.shuffled(one, one, [0] * LANES)

    def shuffled(self, one: Any, other: Any, places: Sequence[int]) -> Any:
        """Lanes of two vectors, of which the other's are counted on from LANES."""
        return self.b.shuffle_vector(one, other, ir.Constant(self.INTS, list(places)))

    def fma(self, one: Any, other: Any, more: Any) -> Any:
        """one * other + more, rounded once."""
        return self.b.call(self._fma, [one, other, more])

    def maximum(self, one: Any, other: Any) -> Any:
        """The larger of each two floats, `other` where there is a NaN."""
        return self.b.select(self.b.fcmp_ordered(">", one, other), one, other)

    def reduced(self, vector: Any, operation: Callable[[Any, Any], Any]) -> Any:
        """One float of all lanes, halves first."""
        for distance in HALVES:
            rotated = self.shuffled(vector, vector, [(lane + distance) % LANES for lane in range(LANES)])
            vector = operation(vector, rotated)
        return self.b.extract_element(vector, ir.Constant(self.INT, 0))

    def exp(self, x: Any) -> Any:
        """e ** x for x <= 0, and 0 below -87; NaN stays. 2 ** n times a polynomial (Cephes' expf)."""
        gone = self.b.fcmp_ordered("<", x, self.constant(-87.0))
        x = self.b.select(gone, self.constant(-87.0), x)
        log2_e, whole = self.constant(1.4426950408889634), self.constant(1.5 * 2**23)  # which rounds to an integer
        shifted = self.b.fadd(self.b.fmul(x, log2_e), whole)
        n = self.b.fsub(shifted, whole)
        rest = self.fma(n, self.constant(2.12194440e-4), self.fma(n, self.constant(-0.693359375), x))
        series = self.constant(1.9875691500e-4)
        for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            series = self.fma(series, rest, self.constant(c))
        series = self.fma(series, self.b.fmul(rest, rest), self.b.fadd(rest, self.constant(1.0)))
        bias, place = ir.Constant(self.INTS, [127] * LANES), ir.Constant(self.INTS, [23] * LANES)
        power = self.b.shl(self.b.add(self.b.bitcast(shifted, self.INTS), bias), place)
        return self.b.select(gone, self.constant(0.0), self.b.fmul(series, self.b.bitcast(power, self.FLOATS)))

    def loop(self, count: Any, vectors: list[Any], step: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        """`step` for 0, 1, … count - 1 (at least once), each with the vectors of the one before; the last ones."""
        before, body, after = self.b.block, self.b.append_basic_block(), self.b.append_basic_block()
        self.b.branch(body)
        self.b.position_at_end(body)
        index, *held = (self.b.phi(kind) for kind in (self.ADDRESS, *(self.FLOATS for _ in vectors)))
        found = step(index, held)
        following = self.b.add(index, self.number(1))
        for phi, first, later in zip((index, *held), (self.number(0), *vectors), (following, *found), strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(later, self.b.block)
        self.b.cbranch(self.b.icmp_signed("<", following, count), body, after)
        self.b.position_at_end(after)
        return found

    def each(self, width: Any, write: Callable[[Any], None]) -> None:
        """`write` for 0, LANES, 2 * LANES, … below `width`, which is not 0."""

        def step(index: Any, _vectors: list[Any]) -> list[Any]:
            write(self.b.mul(index, self.number(LANES)))
            return []

        self.loop(self.b.sdiv(width, self.number(LANES)), [], step)

    def slot(self, slots: Any, index: Any) -> Any:
        """The slot that stands at an index."""
        place = self.b.add(slots, self.b.mul(index, self.number(SLOT_BYTES)))
        return self.b.load(self.b.inttoptr(place, self.ADDRESS.as_pointer()))

    def clamped(self, value: Any, least: Any, most: Any) -> Any:
        """An integer, or the nearest that is allowed."""
        value = self.b.select(self.b.icmp_signed("<", value, least), least, value)
        return self.b.select(self.b.icmp_signed(">", value, most), most, value)


def _written(write: Callable[..., None], *arguments: Any) -> Any:
    """What numba wants of a function of such arguments, whose body `write(code, *arguments)` writes."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, given: Sequence[Any]) -> Any:
        write(_Code(builder), *given)
        return context.get_dummy_value()

    return types.none(*arguments), generate


@compiled
def fetch_add(_context: Any, counter: Any) -> Any:
    """The number that stands at an address, which is one larger from then on, for all threads."""

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, given: Sequence[Any]) -> Any:
        place = builder.inttoptr(given[0], _Code.ADDRESS.as_pointer())
        return builder.atomic_rmw("add", place, _Code.number(1), "monotonic")

    return types.intp(types.intp), generate


@compiled
def integer(_context: Any, numbers: Any, index: Any) -> Any:
    """The 64-bit integer at an index."""

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, given: Sequence[Any]) -> Any:
        return _Code(builder).slot(*given)

    return types.intp(types.intp, types.intp), generate


@compiled
def fill(_context: Any, target: Any, value: Any, count: Any) -> Any:
    """target [count] = value; a multiple of LANES, and not none."""

    def write(code: _Code, target: Any, value: Any, count: Any) -> None:
        vector = code.broadcast(value)
        code.each(count, lambda place: code.store(vector, target, place))

    return _written(write, types.intp, types.float32, types.intp)


@compiled
def scale_into(_context: Any, source: Any, scale: Any, target: Any, width: Any) -> Any:
    """target [width] = scale * source."""

    def write(code: _Code, source: Any, scale: Any, target: Any, width: Any) -> None:
        factor = code.broadcast(scale)
        code.each(width, lambda place: code.store(code.b.fmul(factor, code.load(source, place)), target, place))

    return _written(write, types.intp, types.float32, types.intp, types.intp)


@compiled
def divide_into(_context: Any, sums: Any, total: Any, target: Any, width: Any) -> Any:
    """target [width] = sums / total []."""

    def write(code: _Code, sums: Any, total: Any, target: Any, width: Any) -> None:
        whole = code.broadcast(code.float_at(total, code.number(0)))
        code.each(width, lambda place: code.store(code.b.fdiv(code.load(sums, place), whole), target, place))

    return _written(write, *[types.intp] * 4)


@compiled
def transpose(_context: Any, keys: Any, stride: Any, slots: Any, transposed: Any) -> Any:
    """transposed [LANES of D, KEYS] = keys [slots, LANES of D], of LANES slots; half of each moves in every round."""

    def write(code: _Code, keys: Any, stride: Any, slots: Any, transposed: Any) -> None:
        rows = [code.load(keys, code.b.mul(code.slot(slots, code.number(lane)), stride)) for lane in range(LANES)]
        for half in HALVES:
            low = [lane + (LANES - half if lane & half else 0) for lane in range(LANES)]
            high = [lane + (LANES if lane & half else half) for lane in range(LANES)]
            for lane in range(LANES):
                if not lane & half:
                    one, other = rows[lane], rows[lane + half]
                    rows[lane], rows[lane + half] = code.shuffled(one, other, low), code.shuffled(one, other, high)
        for lane, row in enumerate(rows):
            code.store(row, transposed, code.number(lane * KEYS))

    return _written(write, *[types.intp] * 4)


@compiled
def multiply_keys(_context: Any, queries: Any, transposed: Any, scores: Any, width: Any) -> Any:
    """scores [ROWS, KEYS] = queries [ROWS, D] @ transposed [D, KEYS], added up from the first of D on."""

    def write(code: _Code, queries: Any, transposed: Any, scores: Any, width: Any) -> None:
        for column in range(0, KEYS, COLUMNS):

            def step(index: Any, sums: list[Any], column: int = column) -> list[Any]:
                first = code.b.add(code.b.mul(index, code.number(KEYS)), code.number(column))
                keys = [code.load(transposed, code.b.add(first, code.number(LANES * part))) for part in range(HELD)]
                found = []
                for row in range(ROWS):
                    place = code.b.add(code.b.mul(width, code.number(row)), index)
                    query = code.broadcast(code.float_at(queries, place))
                    found += [code.fma(query, keys[part], sums[row * HELD + part]) for part in range(HELD)]
                return found

            for place, vector in enumerate(code.loop(width, [code.constant(0.0)] * (ROWS * HELD), step)):
                row, part = divmod(place, HELD)
                code.store(vector, scores, code.number(row * KEYS + column + part * LANES))

    return _written(write, *[types.intp] * 4)


@compiled
def softmax_step(_context: Any, scores: Any, first: Any, end: Any, largest: Any, total: Any, rescale: Any) -> Any:
    """A row's scores [KEYS] become weights, 0 but for the keys `first .. end`: a step of an online softmax.

    Given `largest` [] and `total` [] of the keys before, writes those with these keys, and in `rescale` [] what the
    values before are to be multiplied with.
    """

    def write(code: _Code, scores: Any, first: Any, end: Any, largest: Any, total: Any, rescale: Any) -> None:
        b, none, lowest = code.b, code.number(0), code.number(-KEYS)
        first, end = (
            code.broadcast(b.trunc(code.clamped(place, lowest, code.number(KEYS)), code.INT)) for place in (first, end)
        )
        parts = []
        for part in range(VECTORS):
            place = ir.Constant(code.INTS, list(range(part * LANES, (part + 1) * LANES)))
            seen = b.and_(b.icmp_signed(">=", place, first), b.icmp_signed("<", place, end))
            parts.append(b.select(seen, code.load(scores, code.number(part * LANES)), code.constant(float("-inf"))))
        before = code.float_at(largest, none)
        top = code.maximum(code.reduced(reduce(code.maximum, parts), code.maximum), before)
        nothing = b.fcmp_ordered("==", top, ir.Constant(code.FLOAT, float("-inf")))  # no key seen yet
        base = b.select(nothing, ir.Constant(code.FLOAT, 0.0), top)
        weights = [code.exp(b.fsub(part, code.broadcast(base))) for part in parts]
        for part, vector in enumerate(weights):
            code.store(vector, scores, code.number(part * LANES))
        factor = b.extract_element(code.exp(code.broadcast(b.fsub(before, base))), ir.Constant(code.INT, 0))
        weight = b.fadd(b.fmul(code.float_at(total, none), factor), code.reduced(reduce(b.fadd, weights), b.fadd))
        for value, place in ((top, largest), (weight, total), (factor, rescale)):
            b.store(value, code.pointer(place, none, code.FLOAT))

    return _written(write, *[types.intp] * 6)


def _adding(vectors: int) -> Any:
    """The function that adds up so many vectors of each value."""

    @compiled
    def add_values(
        _context: Any, weights: Any, rescale: Any, values: Any, stride: Any, slots: Any, sums: Any, width: Any
    ) -> Any:
        """sums [ROWS, width] = rescale [ROWS] * sums + weights [ROWS, KEYS] @ values [slots], from the first key on."""

        def write(
            code: _Code, weights: Any, rescale: Any, values: Any, stride: Any, slots: Any, sums: Any, width: Any
        ) -> None:
            def step(index: Any, found: list[Any]) -> list[Any]:
                first = code.b.mul(code.slot(slots, index), stride)
                value = [code.load(values, code.b.add(first, code.number(part * LANES))) for part in range(vectors)]
                more = []
                for row in range(ROWS):
                    weight = code.broadcast(code.float_at(weights, code.b.add(index, code.number(row * KEYS))))
                    more += [code.fma(weight, value[part], found[row * vectors + part]) for part in range(vectors)]
                return more

            added = code.loop(code.number(KEYS), [code.constant(0.0)] * (ROWS * vectors), step)
            for row in range(ROWS):
                factor = code.broadcast(code.float_at(rescale, code.number(row)))
                for part in range(vectors):
                    place = code.b.add(code.b.mul(width, code.number(row)), code.number(part * LANES))
                    code.store(code.fma(factor, code.load(sums, place), added[row * vectors + part]), sums, place)

        return _written(write, *[types.intp] * 7)

    return add_values


add_values_narrow, add_values_wide = _adding(1), _adding(HELD)
"""Values of LANES columns, and of COLUMNS."""
