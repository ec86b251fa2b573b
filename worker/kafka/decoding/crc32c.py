"""CRC-32C (Castagnoli), the checksum of a record batch (RFC 3720, B.4).

It uses the SSE4.2 instruction if available, and otherwise slicing-by-8 with tables (Kounavis and Berry, 2005).
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from worker.kafka.decoding.batches import CHECKED_FROM, State
from worker.kafka.decoding.memory import Window, byte_at, little32_at, little64_at, window

_config: Any = numba.config
# Whether the target processor of the kernels has the instruction
HAS_INSTRUCTION = _config.CPU_NAME is None and bool(
    llvmlite.binding.get_host_cpu_features().get("sse4.2", False)
)

_POLYNOMIAL = 0x82F63B78  # reflected
_ONES = 0xFFFFFFFF


def _tables() -> npt.NDArray[np.int64]:
    """Returns an (8, 256) table: [j, b] is the CRC of byte b and j zero bytes."""
    tables = np.zeros((8, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = tables[0] >> 1 ^ (tables[0] & 1) * np.uint32(_POLYNOMIAL)
    for j in range(1, 8):
        tables[j] = tables[j - 1] >> 8 ^ tables[0][tables[j - 1] & 0xFF]
    return tables.astype(np.int64)  # all numbers in kernels have 64 bits


_TABLES = _tables()


def _instruction(bits: int) -> Any:
    def step(_typing: Any, _crc: Any, _word: Any) -> Any:
        def build(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            crc, word = ir.IntType(max(bits, 32)), ir.IntType(bits)
            kind = ir.FunctionType(crc, [crc, word])
            name = f"llvm.x86.sse42.crc32.{crc.width}.{bits}"
            instruction = builder.module.declare_intrinsic(name, fnty=kind)
            if bits == 64:
                return builder.call(instruction, arguments)
            narrow = [builder.trunc(arguments[0], crc), builder.trunc(arguments[1], word)]
            return builder.zext(builder.call(instruction, narrow), ir.IntType(64))

        return types.int64(types.int64, types.int64), build

    return intrinsic(step)


_with_word, _with_byte = _instruction(64), _instruction(8)


@njit(cache=True, nogil=True)
def by_instruction(of: Window, begin: int, end: int) -> int:
    """Returns the checksum of [begin, end) by SSE4.2; needs `HAS_INSTRUCTION`."""
    crc = _ONES
    while end - begin >= 8:
        crc = _with_word(crc, little64_at(of, begin))
        begin += 8
    while begin < end:
        crc = _with_byte(crc, byte_at(of, begin))
        begin += 1
    return crc ^ _ONES


@njit(cache=True, nogil=True)
def by_tables(of: Window, begin: int, end: int) -> int:
    """Returns the checksum of [begin, end) by tables."""
    crc = _ONES
    while end - begin >= 8:
        low = crc ^ little32_at(of, begin)
        high = little32_at(of, begin + 4)
        crc = (
            _TABLES[7, low & 0xFF]
            ^ _TABLES[6, low >> 8 & 0xFF]
            ^ _TABLES[5, low >> 16 & 0xFF]
            ^ _TABLES[4, low >> 24]
            ^ _TABLES[3, high & 0xFF]
            ^ _TABLES[2, high >> 8 & 0xFF]
            ^ _TABLES[1, high >> 16 & 0xFF]
            ^ _TABLES[0, high >> 24]
        )
        begin += 8
    while begin < end:
        crc = crc >> 8 ^ _TABLES[0, (crc ^ byte_at(of, begin)) & 0xFF]
        begin += 1
    return crc ^ _ONES


_checksum = by_instruction if HAS_INSTRUCTION else by_tables


def crc32c(data: npt.NDArray[np.uint8]) -> int:
    """Returns the CRC-32C of bytes.

    Example:
        >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
        '0xe3069283'
    """
    return int(_of_all(data))


@njit(cache=True, nogil=True)
def _of_all(data: npt.NDArray[np.uint8]) -> int:
    return _checksum(window(data), 0, data.size)


@njit(cache=True, nogil=True)
def check(fetched: npt.NDArray[np.uint8], rows: Any, n: int) -> None:
    """Marks batches with a wrong checksum among the first n rows; O(bytes)."""
    of = window(fetched)
    for i in range(n):
        row = rows[i]
        begin, end = row.place + CHECKED_FROM, row.place + row.size
        if row.state == State.READ and _checksum(of, begin, end) != row.checksum:
            row.state = State.CHECKSUM
