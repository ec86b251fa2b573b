"""CRC-32C (Castagnoli), the checksum of a record batch: by the processor's instruction, else by tables.

The polynomial is 0x1EDC6F41, reflected, begun and ended with all ones (RFC 3720, B.4). Two ways to the same number:
the SSE4.2 instruction takes eight bytes at a time; slicing-by-8 (Kounavis and Berry, 2005) looks each of eight bytes
up in a table of its own. Which one a machine takes is decided at import, and never shows in a result.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types, uint32
from numba.extending import intrinsic

from worker.kafka.batches import CHECKED_FROM, State

_config: Any = numba.config
HAS_INSTRUCTION = _config.CPU_NAME is None and bool(
    llvmlite.binding.get_host_cpu_features().get("sse4.2", False)
)
"""Whether the processor that kernels are compiled for has the instruction."""

_POLYNOMIAL = 0x82F63B78  # reflected
_ONES = 0xFFFFFFFF


def _tables() -> npt.NDArray[np.uint32]:
    """Row j holds what a byte becomes that is followed by j others."""
    tables = np.zeros((8, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = tables[0] >> 1 ^ (tables[0] & 1) * np.uint32(_POLYNOMIAL)
    for j in range(1, 8):
        tables[j] = tables[j - 1] >> 8 ^ tables[0][tables[j - 1] & 0xFF]
    return tables


_TABLES = _tables()


def _load_word(_typing: Any, data: Any, at: Any) -> Any:
    """Eight bytes at any place, the first one lowest; all of them have to be inside."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(data, at), build


def _crc32_instruction(_typing: Any, _crc: Any, _word: Any) -> Any:
    """The instruction: a checksum on its way, and eight bytes more."""

    def build(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(word, [word, word])
        instruction = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", fnty=kind)
        return builder.call(instruction, arguments)

    return types.uint64(types.uint64, types.uint64), build


_word: Any = intrinsic(_load_word)
_crc32_of_word: Any = intrinsic(_crc32_instruction)


@njit(cache=True, nogil=True)
def _bytes(crc: np.uint32, data: npt.NDArray[np.uint8], begin: int, end: int) -> np.uint32:
    """A checksum on its way, and some bytes more, one at a time."""
    for at in range(begin, end):
        crc = uint32(crc >> 8) ^ _TABLES[0, (crc ^ data[at]) & 0xFF]
    return uint32(crc)


@njit(cache=True, nogil=True)
def by_instruction(data: npt.NDArray[np.uint8], begin: int, end: int) -> np.uint32:
    """The checksum of data[begin:end] by the instruction; only where `HAS_INSTRUCTION`."""
    crc = np.uint64(_ONES)
    while end - begin >= 8:
        crc = _crc32_of_word(crc, _word(data, begin))
        begin += 8
    return uint32(_bytes(uint32(crc), data, begin, end) ^ _ONES)


@njit(cache=True, nogil=True)
def by_tables(data: npt.NDArray[np.uint8], begin: int, end: int) -> np.uint32:
    """The checksum of data[begin:end] by tables."""
    crc = uint32(_ONES)
    while end - begin >= 8:
        crc = (
            _TABLES[7, (crc ^ data[begin]) & 0xFF]
            ^ _TABLES[6, (crc >> 8 ^ data[begin + 1]) & 0xFF]
            ^ _TABLES[5, (crc >> 16 ^ data[begin + 2]) & 0xFF]
            ^ _TABLES[4, (crc >> 24 ^ data[begin + 3]) & 0xFF]
            ^ _TABLES[3, data[begin + 4]]
            ^ _TABLES[2, data[begin + 5]]
            ^ _TABLES[1, data[begin + 6]]
            ^ _TABLES[0, data[begin + 7]]
        )
        begin += 8
    return uint32(_bytes(crc, data, begin, end) ^ _ONES)


_checksum = by_instruction if HAS_INSTRUCTION else by_tables


def crc32c(data: npt.NDArray[np.uint8]) -> int:
    """The CRC-32C of bytes.

    Example:
        >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
        '0xe3069283'
    """
    return int(_checksum(data, 0, data.size))


@njit(cache=True, nogil=True)
def check(fetched: npt.NDArray[np.uint8], rows: Any, n: int) -> None:
    """Marks the batches whose checksum is another than their header says; O(bytes).

    Args:
        fetched: the bytes that the rows are of.
        rows: from `batches.scan`; ``state`` is changed.
        n: how many rows there are.
    """
    for i in range(n):
        row = rows[i]
        if (
            row.state == State.READ
            and _checksum(fetched, row.place + CHECKED_FROM, row.place + row.size) != row.checksum
        ):
            row.state = State.CHECKSUM
