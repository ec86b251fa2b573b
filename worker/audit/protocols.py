"""Protocols: format, validity and counting of reports."""

import decimal
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.audit.decoding import chances_of
from worker.audit.errors import AuditError
from worker.audit.hashes import HASHES, State, count_olh


def _log2_bytes(limit: int) -> int:
    return next(power for power in range(4) if limit <= 1 << (8 << power))


@dataclass(frozen=True)
class Protocol:
    """Format and counting of a protocol's reports."""

    entries: int  # length of the state
    columns: np.dtype[np.void]  # bytes of one report
    numbers: struct.Struct | None  # packs a report from numbers in JSON; None if JSON has base64
    ones: int | None  # amount that each report adds to the state's sum; None if it varies
    allowed: Callable[[bytes], bool]  # whether all reports are in range
    likely: Callable[[bytes], bool]  # whether honest clients could have sent all reports
    count: Callable[..., None]  # adds columns of reports to a state


def protocol_of(document: Mapping[str, Any]) -> Protocol:
    """Returns a document's protocol; raises `AuditError` for an unknown one."""
    d: int = document["domain_size"]
    match document:
        case {"protocol": "grr" | "response"}:
            return _of_numbers(d, (d,), _count_indices)
        case {"protocol": "olh", "g": g, "hash": ("mul32" | "xxh32") as name}:
            return _of_numbers(d, (1 << 32, g), partial(count_olh, g=g, hashed=HASHES[name]))
        case {"protocol": "oue" | "sue" | "unary"}:
            return _of_bits(d, None, lambda: weight_bounds(*chances_of(document), d))
        case {"protocol": "subset", "k": k}:
            return _of_indices(d, k) if (k << _log2_bytes(d)) <= (d + 7) // 8 else _of_bits(d, k)
        case {"protocol": "hadamard"}:
            size = 2
            while size <= d:
                size *= 2
            return _of_numbers(size, (size,), _count_indices)
        case {"protocol": "pgr", "prime": prime, "dimension": dimension}:
            points = sum(prime**i for i in range(dimension))
            return _of_numbers(points, (points,), _count_indices)
    given = {key: value for key, value in document.items() if key != "labels"}
    known = "grr, olh with hash mul32 or xxh32, oue, sue, subset, hadamard, pgr, response and unary"
    raise AuditError(f"{given}: the audit supports the protocols {known}")


def _of_numbers(entries: int, limits: tuple[int, ...], count: Callable[..., None]) -> Protocol:
    numbers = struct.Struct("<" + "".join("BHIQ"[_log2_bytes(limit)] for limit in limits))
    columns = np.dtype([(f"f{i}", f"<u{1 << _log2_bytes(limit)}") for i, limit in enumerate(limits)])

    def allowed(body: bytes) -> bool:
        reports = np.frombuffer(body, columns)
        return all(bool((reports[f"f{i}"] < limit).all()) for i, limit in enumerate(limits))

    return Protocol(
        entries, columns, numbers, 1 if len(limits) == 1 else None, allowed, lambda _: True, count
    )


def _of_bits(d: int, ones: int | None, bounds: Callable[[], tuple[int, int]] | None = None) -> Protocol:
    size = (d + 7) // 8

    def reports(body: bytes) -> Iterator[int]:
        return (int.from_bytes(body[at : at + size], "little") for at in range(0, len(body), size))

    def allowed(body: bytes) -> bool:
        return all(bits >> d == 0 and ones in (None, bits.bit_count()) for bits in reports(body))

    def likely(body: bytes) -> bool:
        if bounds is None:
            return True
        low, high = bounds()
        return all(low <= bits.bit_count() <= high for bits in reports(body))

    def count(state: State, reports: npt.NDArray[np.uint8]) -> None:
        state += np.unpackbits(reports, axis=1, count=d, bitorder="little").sum(axis=0, dtype=np.int64)

    return Protocol(d, np.dtype([("bits", "u1", (size,))]), None, ones, allowed, likely, count)


@cache
def weight_bounds(own: Fraction, other: Fraction, d: int) -> tuple[int, int]:
    """Returns the lowest and highest likely Hamming weight of a report; O(d)."""
    with decimal.localcontext(prec=60, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX):
        p, q = (Decimal(chance.numerator) / chance.denominator for chance in (own, other))
        odds, unlikely = q / (1 - q), Decimal("5e-13")
        low, below = 0, Decimal(0)
        fewer, others = Decimal(0), (1 - q) ** (d - 1)  # P(k−1) and P(k) of the weight of the other bits
        for k in range(d + 1):
            if below <= unlikely:
                low = k
            below += (1 - p) * others + p * fewer
            if 1 - below <= unlikely:
                return low, k
            fewer, others = others, others * (odds * (d - 1 - k) / (k + 1))
    raise AssertionError("the probabilities of weights 0 to d add up to 1")


def _of_indices(d: int, k: int) -> Protocol:
    columns = np.dtype([("indices", f"<u{1 << _log2_bytes(d)}", (k,))])

    def allowed(body: bytes) -> bool:
        indices = np.frombuffer(body, columns)["indices"]
        return bool((indices[:, :-1] < indices[:, 1:]).all() and (indices[:, -1] < d).all())

    return Protocol(d, columns, None, k, allowed, lambda _: True, _count_indices)


def _count_indices(state: State, indices: npt.NDArray[Any]) -> None:
    np.add.at(state, indices.ravel().astype(np.int64), 1)
