"""OAuth 2.0 tokens by client credentials (RFC 6749 §4.4), with renewal.

Kafka's client requests tokens in its heartbeat thread, so a request waits only if there is no valid token. While the
endpoint fails, clients get the last valid token. An unused token is not renewed.
"""

import base64
import functools
import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

TIMEOUT_SECONDS = 5.0
"""Maximum wait for the endpoint and for a first token."""
_RETRY_SECONDS = 2.0
_RENEWED_AT = 0.8
"""Share of a token's lifetime after which the next token is fetched."""
_UNSAID_SECONDS = 60.0
"""Assumed lifetime of a token without ``expires_in``."""
_MOST_SECONDS = 86_400.0
"""Maximum lifetime of a token."""
_MOST_BYTES = 1 << 20
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token (RFC 6750, section 2.1)."""


class TokenError(RuntimeError):
    """The endpoint returned no valid token."""


@dataclass(frozen=True)
class Credentials:
    """Client credentials for a token endpoint."""

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    cafile: str | None = None


class Tokens:
    """Tokens of a client; implements kafka-python's AbstractTokenProvider."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._changed = threading.Condition()
        self._token, self._until = "", 0.0
        self._failure: TokenError | None = None
        self._renewing = self._wanted = False

    def token(self) -> str:
        """Returns a valid token; waits only if there is none.

        Raises:
            TokenError: the endpoint returned no valid token in time.
        """
        with self._changed:
            self._wanted = True
            if not self._renewing:
                self._renewing = True
                threading.Thread(target=self._renew, name="tokens", daemon=True).start()
            self._changed.wait_for(lambda: self._is_good() or self._failure is not None, TIMEOUT_SECONDS)
            if self._is_good():
                return self._token
            raise self._failure or TokenError(
                f"{_place(self._credentials)} does not answer within {TIMEOUT_SECONDS:g} s"
            )

    def extensions(self) -> dict[str, str]:
        """Returns no SASL extensions."""
        return {}

    def _is_good(self) -> bool:
        return time.monotonic() < self._until

    def _renew(self) -> None:
        """Renews the token for as long as clients request it."""
        while True:
            started = time.monotonic()
            found = failure = None
            try:
                found = fetch(self._credentials)
            except TokenError as error:
                failure = error
            with self._changed:
                self._failure = failure
                if found is not None:
                    self._token, self._until = found[0], started + found[1]
                self._changed.notify_all()
            time.sleep(_RETRY_SECONDS if found is None else _RENEWED_AT * found[1])
            with self._changed:
                if not self._wanted:
                    self._renewing, self._failure = False, None
                    return
                self._wanted = False


@functools.cache
def tokens_of(credentials: Credentials) -> Tokens:
    """Returns the `Tokens` for credentials, shared within this process."""
    return Tokens(credentials)


def fetch(credentials: Credentials) -> tuple[str, float]:
    """Fetches a token; returns it and its lifetime in seconds.

    Raises:
        TokenError: the endpoint does not answer, refuses, or sends no valid token.
    """
    place = _place(credentials)
    body = {"grant_type": "client_credentials"} | ({"scope": credentials.scope} if credentials.scope else {})
    login = f"{quote(credentials.client_id, safe='')}:{quote(credentials.client_secret, safe='')}"
    headers = {
        "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
        "Accept": "application/json",
    }
    data = urlencode(body).encode()
    request = urllib.request.Request(credentials.endpoint, data, headers)  # noqa: S310  # http or https: is_endpoint
    try:
        context = ssl.create_default_context()
        if credentials.cafile is not None:
            context.load_verify_locations(credentials.cafile)
        opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=TIMEOUT_SECONDS) as reply:
            answer = _json(reply)
    except urllib.error.HTTPError as error:
        with error:
            code = _json(error).get("error")
        # an answer can repeat the secret, so the message has only codes of the form of RFC 6749
        why = f" ({code})" if isinstance(code, str) and re.fullmatch("[a-z_]{1,40}", code) else ""
        raise TokenError(f"{place} refuses: HTTP {error.code}{why}") from None
    except (OSError, HTTPException, ValueError) as error:  # ValueError: an invalid host name
        raise TokenError(f"{place} does not answer: {getattr(error, 'reason', None) or error}") from None
    token, lasts = answer.get("access_token"), answer.get("expires_in", _UNSAID_SECONDS)
    if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
        raise TokenError(f"{place} sent an answer without a valid access_token")
    try:
        seconds = float(lasts)
    except (TypeError, ValueError, OverflowError):
        seconds = 0.0
    if not seconds >= 1:
        raise TokenError(f"{place} sent a token with an invalid expires_in; allowed is at least 1 s")
    return token, min(seconds, _MOST_SECONDS)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which could send the secret to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Returns None, which makes urllib raise HTTPError."""


def _json(reply: IO[bytes]) -> dict[str, Any]:
    """Returns the JSON object in a response, or an empty object."""
    try:
        found = json.loads(reply.read(_MOST_BYTES))
    except (ValueError, RecursionError, OSError, HTTPException):
        return {}
    return found if isinstance(found, dict) else {}


def _place(credentials: Credentials) -> str:
    """Returns a description of the endpoint, with only the host of its URL."""
    return f"the token endpoint at {urlsplit(credentials.endpoint).netloc}"
