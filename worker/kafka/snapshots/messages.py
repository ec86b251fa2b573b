"""The newest message of each key of a stream's snapshots, as many as one snapshot can have."""

from collections import UserDict
from collections.abc import Mapping

Message = tuple[Mapping[str, bytes], bytes]
"""Headers and value."""
_MORE = 512
"""Bytes that a message takes beside its key, its headers and its value, about."""


class Messages(UserDict[str, Message]):
    """Messages by their keys, in no more than a number of bytes.

    Args:
        most: that number.

    Example:
        >>> messages = Messages(2000)
        >>> messages["s/head"] = {}, b"1" * 900
        >>> messages["s/head"] = {}, b"2" * 900
        >>> messages["s/all/base"] = {}, b"3" * 900
        Traceback (most recent call last):
        ValueError: messages of 1,418 bytes are kept already; allowed are 2,000
        >>> messages.clear()
        >>> messages["s/all/base"] = {}, b"3" * 900
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._size = most, 0

    def __setitem__(self, key: str, message: Message) -> None:
        before = _size(key, self.data[key]) if key in self.data else 0
        if (after := self._size - before + _size(key, message)) > self._most:
            raise ValueError(f"messages of {self._size:,} bytes are kept already; allowed are {self._most:,}")
        self._size = after
        super().__setitem__(key, message)

    def __delitem__(self, key: str) -> None:
        self._size -= _size(key, self.data[key])
        super().__delitem__(key)


def _size(key: str, message: Message) -> int:
    """Returns the bytes that a message takes, about."""
    headers, value = message
    return _MORE + len(key) + len(value) + sum(len(name) + len(said or b"") for name, said in headers.items())
