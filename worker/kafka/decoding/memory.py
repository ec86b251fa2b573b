"""Unaligned array access in kernels without reference counting.

A window is an array's address and size. Passing an array between kernels counts references, which takes longer than
reading a varint. A window is valid only in the kernel that received the array, while the array exists. Indices are
checked only with NUMBA_BOUNDSCHECK.

numba's kernel cache does not detect changes to this file: run ``make clean`` after a change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Window = tuple[int, int]

WIDE = 16  # Bytes that `copy_wide` copies

_cgutils: Any = numba.core.cgutils
_config: Any = numba.config


def _pointer(builder: Any, context: Any, of: Any, at: Any, kind: Any) -> Any:
    address, size = _cgutils.unpack_tuple(builder, of, 2)
    if _config.BOUNDSCHECK:
        wide = kind.count if isinstance(kind, ir.VectorType) else kind.width // 8
        last = builder.add(at, ir.Constant(at.type, wide - 1))
        for index in (at, last):
            _cgutils.do_boundscheck(context, builder, index, size)
    return builder.inttoptr(builder.add(address, at), kind.as_pointer())


def _array_window(_typing: Any, data: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        (size,) = _cgutils.unpack_tuple(builder, array.shape, 1)
        address = builder.ptrtoint(array.data, size.type)
        return context.make_tuple(builder, signature.return_type, (address, size))

    pair: Any = types.UniTuple
    return pair(types.int64, 2)(data), build


def _reading(bits: int, big_endian: bool) -> Callable[[Window, int], int]:
    """Returns a function that reads a number. Big-endian numbers are signed."""

    def read(_typing: Any, of: Any, _at: Any) -> Any:
        def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            number = builder.load(
                _pointer(builder, context, arguments[0], arguments[1], ir.IntType(bits)), align=1
            )
            if big_endian:
                number = builder.bswap(number)
            extended = builder.sext if big_endian else builder.zext
            return number if bits == 64 else extended(number, ir.IntType(64))

        return types.int64(of, types.int64), build

    return cast("Callable[[Window, int], int]", intrinsic(read))


def _copy(_typing: Any, to: Any, _place: Any, of: Any, _at: Any) -> Any:
    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, place, source, at = arguments
        wide = ir.VectorType(ir.IntType(8), WIDE)
        copied = builder.load(_pointer(builder, context, source, at, wide), align=1)
        builder.store(copied, _pointer(builder, context, target, place, wide), align=1)
        return context.get_dummy_value()

    return types.none(to, types.int64, of, types.int64), build


def _write(_typing: Any, to: Any, _place: Any, _byte: Any) -> Any:
    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, place, byte = arguments
        pointer = _pointer(builder, context, target, place, ir.IntType(8))
        builder.store(builder.trunc(byte, ir.IntType(8)), pointer)
        return context.get_dummy_value()

    return types.none(to, types.int64, types.int64), build


window = cast("Callable[[Any], Window]", intrinsic(_array_window))
byte_at = _reading(8, big_endian=False)
little16_at = _reading(16, big_endian=False)
little32_at = _reading(32, big_endian=False)
little64_at = _reading(64, big_endian=False)
big16_at = _reading(16, big_endian=True)
big32_at = _reading(32, big_endian=True)
big64_at = _reading(64, big_endian=True)
copy_wide = cast("Callable[[Window, int, Window, int], None]", intrinsic(_copy))
write_byte = cast("Callable[[Window, int, int], None]", intrinsic(_write))
