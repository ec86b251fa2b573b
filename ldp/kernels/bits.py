"""Counts the bits of reports, for unary encoding and Subset Selection."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types, uint8, uint32
from numba.core import cgutils
from numba.extending import intrinsic

from ldp.kernels.inner import lean, pointer_to

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LINE = 64  # bytes of a report summed together, a cache line
MOST = 255  # reports that a counter of 1 byte can add
_PIECE = 8  # bytes whose bits fill a vector register with counters


def _summing(size: int) -> Any:
    """Returns an operation that sums the bits of pieces of `size` bytes.

    Piece i of n ≤ `MOST` begins at `at` + i·`stride`. Counter v of `sums` becomes the number of pieces whose bit v is
    set. The operation copies each byte to eight lanes of a vector register and tests one bit in each lane. The
    counters stay in registers. LLVM does not compile a loop of numba to these instructions.
    """
    many, bits = max(1, size // _PIECE), 8 * min(size, _PIECE)
    byte, words = ir.IntType(8), ir.VectorType(ir.IntType(8), bits // 8)
    vector = ir.VectorType(byte, bits)
    zeros, copies = ir.Constant(vector, [0] * bits), [v // 8 for v in range(bits)]
    masks, places = [1 << v % 8 for v in range(bits)], ir.VectorType(ir.IntType(32), bits)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, data = (
            context.make_array(kind)(context, builder, given).data
            for kind, given in zip(signature.args[:2], arguments[:2], strict=True)
        )
        at, stride, n = arguments[2:]
        totals = [cgutils.alloca_once_value(builder, zeros) for _ in range(many)]  # type: ignore[no-untyped-call]
        for total in totals:
            builder.store(zeros, total)
        with cgutils.for_range(builder, n) as loop:
            piece = builder.gep(data, [builder.add(at, builder.mul(loop.index, stride))])
            for i, total in enumerate(totals):
                place = builder.gep(piece, [ir.Constant(ir.IntType(64), i * _PIECE)])
                word = builder.load(builder.bitcast(place, words.as_pointer()), align=1)
                spread = builder.shuffle_vector(word, word, ir.Constant(places, copies))
                bit = builder.icmp_unsigned("!=", builder.and_(spread, ir.Constant(vector, masks)), zeros)
                builder.store(builder.add(builder.load(total), builder.zext(bit, vector)), total)
        for i, total in enumerate(totals):
            place = builder.bitcast(
                builder.gep(out, [ir.Constant(ir.IntType(64), i * bits)]), vector.as_pointer()
            )
            builder.store(builder.load(total), place, align=1)
        return context.get_dummy_value()

    def operation(_typing: Any, sums: Any, wire: Any, _at: Any, _stride: Any, _n: Any) -> Any:
        return types.none(sums, wire, types.intp, types.intp, types.intp), build

    return intrinsic(operation)


_sum_line, _sum_piece, _sum_byte = _summing(LINE), _summing(_PIECE), _summing(1)


def count_bits(addresses: Ints, ends: Ints, bits: Bytes, d: int) -> None:
    """Adds to each state the number of reports whose bit v is set, for each v.

    The int64 state at `addresses[k]` receives the reports from the end before to `ends[k]`. `bits` is (n, ⌈d/8⌉) uint8
    and contiguous. Value v is bit v mod 8 of byte v div 8, and padding is 0. Counters of 1 byte add the bits of at most
    `MOST` reports, and are then added to the state.
    """
    _count_bits(addresses, ends, bits.reshape(-1), d, np.empty(8 * LINE, np.uint8))


@lean
def _count_bits(addresses: Ints, ends: Ints, wire: Bytes, d: int, sums: Bytes) -> None:
    size, first = (d + 7) // 8, 0
    for k in range(ends.size):
        counters = pointer_to(addresses[k])
        for start in range(first, ends[k], MOST):
            n, left = min(MOST, ends[k] - start), 0
            while left < size:
                at = start * size + left
                if size - left >= LINE:
                    _sum_line(sums, wire, at, size, n)
                    step = LINE
                elif size - left >= _PIECE:
                    _sum_piece(sums, wire, at, size, n)
                    step = _PIECE
                else:
                    _sum_byte(sums, wire, at, size, n)
                    step = 1
                for v in range(min(8 * step, d - 8 * left)):
                    counters[8 * left + v] += sums[v]
                left += step
        first = ends[k]


@njit(cache=True, nogil=True)
def count_ones(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Returns the number of set bits in each row of `bits`, as (n,) int64."""
    ones = np.empty(len(bits), np.int64)
    for i in range(len(bits)):
        row = bits[i]
        total = uint32(0)
        for j in range(row.size):
            x = row[j]  # sums of two, then four, then eight adjacent bits
            x = uint8(x - uint8(uint8(x >> uint8(1)) & uint8(0x55)))
            x = uint8(uint8(x & uint8(0x33)) + uint8(uint8(x >> uint8(2)) & uint8(0x33)))
            total = uint32(total + uint32(uint8(x + uint8(x >> uint8(4))) & uint8(0x0F)))
        ones[i] = total
    return ones
