"""URLs of Redis: a server, a socket, Sentinels or a cluster."""

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

HOST_PORT = r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\])(?::[0-9]{1,5})?"
URL = re.compile(
    rf"(?P<scheme>rediss?(?P<kind>\+sentinel|\+cluster)?)://((?P<user>[^/?#[\]]*)@)?"
    rf"(?P<hosts>{HOST_PORT}(?:,{HOST_PORT})*)(?P<rest>[/?#][^@]*)?"
)
"""An @ after the host does not match, because the end of the password would be ambiguous."""
UNIX = re.compile(r"unix://((?P<user>[^/?#]*)@)?(?P<path>/[^?#@]+)")
ALLOWED = (
    "allowed is redis://host:port/number or rediss://host:port/number, or unix:// and a path, or"
    " redis+sentinel://host:port,host:port/master/number, or redis+cluster://host:port,host:port; with TLS"
    " rediss+sentinel:// and rediss+cluster://; without options"
)
_REST = {
    "server": re.compile(r"(/(?P<number>[0-9]{0,9}))?"),
    "sentinel": re.compile(r"/(?P<master>[A-Za-z0-9._-]{1,200})(/(?P<number>[0-9]{0,9}))?"),
    "cluster": re.compile("(/(?P<number>0?))?"),
}
_PORTS = {"server": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True)
class Address:
    """A parsed URL of Redis."""

    kind: Literal["server", "socket", "sentinel", "cluster"]
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    master: str = ""
    number: int = 0
    path: str = ""


def read(url: str) -> Address | None:
    """Parses a URL; returns None if it is invalid or ambiguous.

    Example:
        >>> read("rediss+sentinel://me@one,two:26380/counts/3")  # doctest: +ELLIPSIS
        Address(kind='sentinel', tls=True, hosts=(('one', 26379), ('two', 26380)), username='me', master='counts', ...
        >>> read("redis+cluster://one:6379/1")
    """
    if found := UNIX.fullmatch(url):
        return Address("socket", False, (), *_login(found["user"]), path=unquote(found["path"]))
    found = URL.fullmatch(url.rstrip())
    if found is None:
        return None
    kind = (found["kind"] or "+server")[1:]
    hosts = tuple(host_port(text, _PORTS[kind]) for text in found["hosts"].split(","))
    rest = _REST[kind].fullmatch(found["rest"] or "")
    if rest is None or any(port > 65535 for _, port in hosts) or (kind == "server" and len(hosts) > 1):
        return None
    more = rest.groupdict()
    return Address(
        kind,  # type: ignore[arg-type]  # the pattern matches only these kinds
        found["scheme"].startswith("rediss"),
        hosts,
        *_login(found["user"]),
        master=more.get("master") or "",
        number=int(more.get("number") or 0),
    )


def host_port(text: str, usual: int) -> tuple[str, int]:
    """Splits a match of `HOST_PORT` into host and port.

    Example:
        >>> host_port("[::1]:7000", 6379), host_port("[::1]", 6379), host_port("cache", 6379)
        (('::1', 7000), ('::1', 6379), ('cache', 6379))
    """
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(usual)
    return host.strip("[]"), int(port)


def _login(user: str | None) -> tuple[str | None, str | None]:
    name, _, password = (user or "").partition(":")
    return unquote(name) or None, unquote(password) or None
