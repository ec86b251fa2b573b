"""The device's end of a stream: a value in, one report's frame out, with secret and exact coins.

It needs the standard library alone; numpy, scipy and numba are never imported. What it sends is defined in
README.md beside this file, for clients in other languages.

What a client must not do, this one or another:

- compare floats: the coins here are integers against exact rationals, and a float threshold would make some
  report impossible for some value, or more likely than e^ε allows;
- draw coins from anything but the system's CSPRNG, from a seeded generator say, or from a seed that it also
  reports: whoever knows the seed knows the value;
- report the same value again, every day say, without adding every report's ε to what the user was promised:
  each call of `Client.report` draws fresh coins, and k reports of one value spend k·ε. To send the same
  report again (a retry) keep its frame and send those bytes;
- stay silent for some values: that somebody did not report tells. A domain needs a value for "none of these";
- send the value beside the report, in a log, a record's key, or an error: so errors here do not repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ldp import wire
from ldp.stream import Stream


class Client:
    """Makes the reports of one stream.

    Args:
        document: the stream's public document, as `Stream.document` gives it or as parsed from its JSON:
            protocol, ε, domain size, the protocol's integers, labels if any.

    Raises:
        TypeError: a part of the document that has the wrong type.
        ValueError: a key that is missing or unknown, or a value that is not allowed.

    Example:
        >>> import json
        >>> document = '{"protocol":"grr","epsilon":"1/1","domain_size":3,"labels":["red","green","blue"]}'
        >>> client = Client(json.loads(document))
        >>> frame = client.report("green")
        >>> frame[:5].hex(), frame[5] in (0, 1, 2)
        ('019e54f8ba', True)
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        stream = Stream.from_document("unnamed", document)
        self._oracle = stream.oracle
        self._header = wire.header(stream.fingerprint)
        self._indices = {label: index for index, label in enumerate(stream.labels or ())}

    def report(self, value: str | int) -> bytes:
        """One whole frame with one fresh report of a value; it spends the stream's ε.

        Args:
            value: the value's label, or its index 0 ≤ v < d.

        Returns:
            What a record of the stream's topic holds: version, fingerprint, report.

        Raises:
            TypeError: a value that is neither a str nor an integer.
            ValueError: a label or index outside the domain. No error repeats the value, which is the user's.
        """
        return self._header + self._oracle.pack(self._oracle.perturb_one(self._index(value)))

    def _index(self, value: str | int) -> int:
        if isinstance(value, str):
            if value not in self._indices:
                raise ValueError(f"the value is none of the stream's {len(self._indices)} labels")
            return self._indices[value]
        # not by `as_integer`: its error would name the value
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"the value is of type {type(value).__name__}; it must be a label or an index")
        if not 0 <= value < self._oracle.domain_size:
            raise ValueError(f"the value is an index outside 0 to {self._oracle.domain_size - 1}")
        return value
