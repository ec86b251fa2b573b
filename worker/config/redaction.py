"""What may be shown of a configuration: no secret, under whatever key and in whatever form somebody put it there."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

_HOST_PORT = r"(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+(%[\w.-]+)?\])(:(?P<port>[0-9]{1,5}))?"
_URL = re.compile(rf"(?P<scheme>rediss?)://([^/?#[\]]*@)?{_HOST_PORT}(?P<rest>[/?#][^@]*)?")
"""An @ behind the host leaves open where the password ends: no match."""
_UNIX = re.compile(r"unix://([^/?#]*@)?/[^?#@]+")


_ENDPOINT = re.compile(rf"https?://{_HOST_PORT}(?P<rest>/[^@#\s]*)?")


def _is_port(text: str | None) -> bool:
    return text is None or int(text) <= 65535


def is_broker(broker: str) -> bool:
    """Returns whether a text is host:port and nothing more."""
    found = re.fullmatch(_HOST_PORT, broker)
    return found is not None and found["port"] is not None and _is_port(found["port"])


def is_endpoint(url: str) -> bool:
    """Returns whether a text is a URL of HTTP without a user or a password."""
    found = _ENDPOINT.fullmatch(url)
    return found is not None and _is_port(found["port"])


def is_redis_url(url: str) -> bool:
    """Returns whether a text is an address of Redis that can be read in one way only."""
    if _UNIX.fullmatch(url):
        return True
    found = _URL.fullmatch(url.rstrip())
    return (
        found is not None
        and _is_port(found["port"])
        and re.fullmatch("(/[0-9]*)?", found["rest"] or "") is not None
    )


def redacted(url: str) -> str:
    """Shows a URL by its scheme, host and port, and nothing else of it: all the rest may hold a secret.

    Example:
        >>> redacted("rediss://me:s3cret@cache:6380/3?password=s3cret")
        'rediss://cache:6380'
        >>> redacted("me:s3/cret@cache:6380")
        'a URL that cannot be shown'
    """
    if _UNIX.fullmatch(url):
        return "unix://"
    found = _URL.fullmatch(url.rstrip())
    if found is None or not _is_port(found["port"]):
        return "a URL that cannot be shown"
    return f"{found['scheme']}://{found['host']}" + (f":{found['port']}" if found["port"] else "")


def position(error: tomllib.TOMLDecodeError) -> str:
    """Says what is wrong with a file and where, but nothing that stands there."""
    what, _, where = str(error).rpartition(" (")
    return f" ({where}" if re.search(r"""["'(]""", what) else f": {what} ({where}"


def key_name(name: str) -> str:
    """Returns a key's name, unless it is none: what was meant for a value may stand in its place."""
    return name if re.fullmatch("[A-Za-z_]{1,40}", name) else "<a key that cannot be shown>"


def said(key: str, value: object) -> str:
    """Returns a value as it was written where it can be no secret, else only what kind of value it is.

    A password can stand under any key of [kafka] and [redis], and as a text under any other but those of a stream;
    there, too, an address may have one in it.
    """
    kind = _kind(value)
    if ("password" in key or "secret" in key) and value is not None:
        return "a secret"
    if key == "redis.url" and isinstance(value, str):
        return redacted(value)
    if isinstance(value, str):
        return repr(value) if key.startswith("streams") and is_showable(value) else kind
    if not isinstance(value, int | float) or re.match(r"(kafka|redis)\b", key):
        return kind
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "a table"
        case []:
            return "an empty list"
        case list():
            return "a list"
        case str():
            return "a text"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case _:
            return "a time"


def is_showable(text: str) -> bool:
    """Returns whether a text is no address, which could have a password in it; as a path it has lost a slash."""
    return "@" not in text and ":/" not in text


def shown_path(path: Path) -> str:
    """Returns a path as it was given, unless somebody put an address there."""
    return str(path) if is_showable(str(path)) else "a path that cannot be shown"
