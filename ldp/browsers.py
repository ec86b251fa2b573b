"""What browsers report by themselves, as frames of a stream: a service that receives it wraps it, and draws no coins.

- Firefox encodes one of N values as N bits (``unaryEncodeDiffPrivacy``), a text of "0" and "1": a report of ``unary``,
  whose p and q are those that the browsers are configured with.
- Chrome and Edge say of a navigation's timing how far it can be trusted, ``PerformanceNavigationTiming.confidence`` of
  the W3C: ``value`` is "low" or "high", replaced by one of both drawn evenly with the probability
  ``randomizedTriggerRate``. It is a report of ``response`` with that rate among the document's ``rates``, 0 for "low"
  and 1 for "high".

The same for a page or a service in JavaScript is in ``clients/javascript/browsers.js``. Neither needs numpy here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ldp import wire
from ldp.oracles.rated import UNDECLARED, RatedResponse
from ldp.oracles.unary import UnaryEncoding

if TYPE_CHECKING:
    from ldp.stream import Stream

VALUES = ("low", "high")


def unary_frame(stream: Stream, bits: str) -> bytes:
    """The frame of a text of bits, the first value's first.

    Args:
        stream: of unary encoding, with as many values as there are bits.
        bits: N characters, "0" or "1".

    Raises:
        TypeError: a stream of another protocol, or bits that are no text.
        ValueError: another number of bits, or other characters; the error repeats none.

    Example:
        >>> import ldp
        >>> topics = ldp.Stream("topics", ldp.Unary("0.75", "0.25", domain_size=10))
        >>> unary_frame(topics, "0100000011")[5:].hex()
        '0203'
    """
    oracle = stream.oracle
    if not isinstance(oracle, UnaryEncoding):
        raise TypeError(f"a text of bits is a report of unary encoding; stream {stream.name} is of {oracle}")
    if not isinstance(bits, str):
        raise TypeError(f"bits are of type {type(bits).__name__}; they must be a text")
    if len(bits) != oracle.domain_size or not set(bits) <= {"0", "1"}:
        raise ValueError(
            f"the text is not {oracle.domain_size} characters of 0 and 1, as the stream's values are"
        )
    report = int(bits[::-1], 2).to_bytes(oracle.report_bytes, "little")
    return wire.header(stream.fingerprint) + report


def confidence_frame(stream: Stream, confidence: Mapping[str, Any]) -> bytes:
    """The frame of a navigation's confidence.

    A rate that the document does not declare makes a frame, too: a worker rejects it with the reason ``rate``, and so
    its operator hears of it. A rate is known by the number that a browser has for it, a double.

    Args:
        stream: of a response with rates.
        confidence: ``value`` and ``randomizedTriggerRate``, as a browser has them; what else is in it is passed over.

    Raises:
        TypeError: a stream of another protocol, or a rate that is no number.
        ValueError: another value than "low" or "high", which the error does not repeat.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("confidence", ldp.RatedResponse(["0.4994798"]), labels=["low", "high"])
        >>> confidence_frame(stream, {"value": "high", "randomizedTriggerRate": 0.4994798})[5:].hex()
        '0001'
        >>> confidence_frame(stream, {"value": "low", "randomizedTriggerRate": 0.5})[5:].hex()
        'ff00'
    """
    oracle = stream.oracle
    if not isinstance(oracle, RatedResponse):
        raise TypeError(
            f"a confidence is a report of a response with rates; stream {stream.name} is of {oracle}"
        )
    if (value := confidence.get("value")) not in VALUES:
        raise ValueError("the confidence's value is neither 'low' nor 'high'")
    given = confidence.get("randomizedTriggerRate")
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"randomizedTriggerRate is of type {type(given).__name__}; it must be a number")
    rate = next((i for i, one in enumerate(oracle.rates) if float(one) == given), UNDECLARED)
    return wire.header(stream.fingerprint) + bytes([rate, VALUES.index(value)])
