"""Frames from values that the browser has already randomized.

- Firefox: ``unaryEncodeDiffPrivacy`` encodes one of N values as a string of N bits, which is a report of ``unary``.
- Chrome and Edge: ``PerformanceNavigationTiming.confidence`` (W3C) contains a ``value``, "low" or "high". With
  probability ``randomizedTriggerRate``, the browser replaces the value with a fair coin flip. Value and rate are a
  report of ``response`` if the document's ``rates`` contain the rate. "low" is 0 and "high" is 1.

``clients/javascript/browsers.js`` does the same in JavaScript. The two modules only convert values and draw no coins.
This module does not need numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ldp import wire
from ldp.oracles.rated import UNDECLARED, RatedResponse
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


def confidence_frame(stream: Stream, confidence: Mapping[str, Any]) -> bytes:
    """Converts a navigation's confidence to a frame, for a rated response.

    `confidence` contains ``value`` and ``randomizedTriggerRate``. Other keys are ignored. A declared rate may have been
    stored as float32. If the document does not declare the rate, a worker rejects the frame with the reason ``rate``.

    Raises:
        TypeError: a stream of another protocol, or a rate that is not a number.
        ValueError: a value other than "low" or "high", which the error does not repeat.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("confidence", ldp.RatedResponse(["0.4994798"]), labels=["low", "high"])
        >>> confidence_frame(stream, {"value": "high", "randomizedTriggerRate": 0.4994798})[5:].hex()
        '0001'
    """
    oracle = stream.oracle
    if not isinstance(oracle, RatedResponse):
        raise TypeError(
            f"a confidence is a report of a response with rates; stream {stream.name} uses {oracle}"
        )
    if (value := confidence.get("value")) not in VALUES:
        raise ValueError("confidence is neither 'low' nor 'high'")
    given = confidence.get("randomizedTriggerRate")
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"randomizedTriggerRate is of type {type(given).__name__}; it must be a number")
    doubles = [float(rate) for rate in oracle.rates]
    singles = [struct.unpack("f", struct.pack("f", rate))[0] for rate in doubles]
    found = (listed.index(given) for listed in (doubles, singles) if listed.count(given) == 1)
    header = wire.header(stream.fingerprint, required(stream.segment, None))
    return header + bytes([next(found, UNDECLARED), VALUES.index(value)])
