"""Frames from values that the browser has already randomized.

- Firefox: ``unaryEncodeDiffPrivacy`` encodes one of N values as a string of N bits, which is a report of ``unary``.
- Chrome and Edge: ``PerformanceNavigationTiming.confidence`` (W3C) contains a ``value``, "low" or "high". With
  probability r, ``randomizedTriggerRate``, the browser replaces the value with a fair coin flip. The value is a report
  of ``response`` with p = 1 − r/2. A stream has one document for each rate. "low" is 0 and "high" is 1.

``clients/javascript/browsers.js`` does the same in JavaScript. The two modules only convert values and draw no coins.
This module does not need numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ldp import wire
from ldp.oracles.response import Response
from ldp.oracles.unary import UnaryEncoding
from ldp.segments import required

if TYPE_CHECKING:
    from ldp.stream import Stream

VALUES = ("low", "high")


def unary_frame(stream: Stream, bits: str) -> bytes:
    """Converts a string of bits to a frame, for unary encoding.

    `bits` has one character, "0" or "1", for each of the d values, in order.

    Raises:
        TypeError: a stream of another protocol, or bits that are not a string.
        ValueError: a wrong number of bits, or characters other than 0 and 1. The error does not repeat the bits.

    Example:
        >>> import ldp
        >>> topics = ldp.Stream("topics", ldp.Unary("0.75", "0.25", domain_size=10))
        >>> unary_frame(topics, "0100000011")[5:].hex()
        '0203'
    """
    oracle = stream.oracle
    if not isinstance(oracle, UnaryEncoding):
        raise TypeError(f"a string of bits is a report of unary encoding; stream {stream.name} uses {oracle}")
    if not isinstance(bits, str):
        raise TypeError(f"bits are of type {type(bits).__name__}; they must be a string")
    if len(bits) != oracle.domain_size or not set(bits) <= {"0", "1"}:
        raise ValueError(
            f"the bits are not {oracle.domain_size} characters 0 or 1, one per value of the stream"
        )
    report = int(bits[::-1], 2).to_bytes(oracle.report_bytes, "little")
    return wire.header(stream.fingerprint, required(stream.segment, None)) + report


def confidence_frame(documents: Sequence[Stream], confidence: Mapping[str, Any]) -> bytes:
    """Converts a navigation's confidence to a frame, for a document's rate.

    `documents` has one document of `Response` for each rate, as the stream lists them. The document of the frame is the
    first with p = 1 − r/2 for the browser's rate r. This rate may have been stored as float32. `confidence` contains
    ``value`` and ``randomizedTriggerRate``. Other keys are ignored.

    Raises:
        TypeError: a document that is not a response of two values, or a rate that is not a number.
        ValueError: a rate that no document has; or a value other than "low" or "high", which the error does not repeat.

    Example:
        >>> import ldp
        >>> documents = [ldp.Stream("confidence", ldp.Response(p, 2)) for p in ("0.9", "0.7502601")]
        >>> frame = confidence_frame(documents, {"value": "high", "randomizedTriggerRate": 0.4994798})
        >>> frame[1:5] == documents[1].fingerprint, frame[5:].hex()
        (True, '01')
    """
    for each in documents:
        if not isinstance(each.oracle, Response) or each.oracle.domain_size != 2:
            raise TypeError(
                f"a confidence is a report of a response of 2 values; a document of {each.name} is of {each.oracle}"
            )
    if (value := confidence.get("value")) not in VALUES:
        raise ValueError("confidence is neither 'low' nor 'high'")
    given = confidence.get("randomizedTriggerRate")
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"randomizedTriggerRate is of type {type(given).__name__}; it must be a number")
    rates = [float(2 * (1 - each.oracle.p)) for each in documents]
    for round_rate in (float, _single):
        found = {rate for rate in rates if round_rate(rate) == given}
        if len(found) == 1:
            document = documents[rates.index(found.pop())]
            header = wire.header(document.fingerprint, required(document.segment, None))
            return header + bytes([VALUES.index(value)])
    raise ValueError(
        f"randomizedTriggerRate is {given}; the documents' rates are {', '.join(map(str, rates))}"
    )


def _single(number: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded
