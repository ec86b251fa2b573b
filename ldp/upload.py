"""Uploads frames to a gateway over HTTP.

This module needs only the standard library. docs/guides/receive-reports.md describes the gateway, and the requests for
clients in other languages.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from http.client import HTTPException, InvalidURL
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

_RETRY_FOR = 1800.0  # Seconds; the shuffler drops duplicates for longer
_TIMEOUT_SECONDS = 30.0  # Time-out of one try; the gateway's own time-outs are shorter
_LONGEST_PAUSE = 60.0


class Refused(Exception):  # noqa: N818  # an answer
    """The gateway refused an upload; another try would fail, too.

    Attributes:
        status: HTTP status.
        reason: reason of a status 400, such as ``fingerprint``; else empty.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(
            f"the gateway answered {status}{reason and f' ({reason})'}; 202 means that it has the upload"
        )
        self.status, self.reason = status, reason


def upload(url: str, frame: bytes) -> None:
    """Uploads a frame; returns when the gateway has stored it.

    Tries again for 30 minutes after network errors and after answers with status 408, 429 and 5xx. All tries have the
    same random ``Idempotency-Key``, so that the upload counts once.

    Args:
        url: ``https://HOST/v1/streams/NAME/reports``.
        frame: from `ldp.client.Client`.

    Raises:
        Refused: the gateway refused the upload.
        TimeoutError: no try succeeded. The gateway may have the upload: another call could count it twice.
        ValueError: a URL that is not valid.

    Example:
        >>> upload("colours", b"")
        Traceback (most recent call last):
        ValueError: unknown url type: 'colours'
    """
    headers = {"Content-Type": "application/octet-stream", "Idempotency-Key": secrets.token_hex(16)}
    request = Request(url, frame, headers)  # noqa: S310  # the caller chooses the URL
    first, pause = time.time(), 1.0
    # a clock that went back does not extend the time
    while 0 <= time.time() - first < _RETRY_FOR:
        asked = _try(request)
        if asked is None:
            return
        time.sleep(min(_LONGEST_PAUSE, max(asked, pause * random.uniform(0.5, 1.0))))  # noqa: S311  # not a secret
        pause *= 2
    raise TimeoutError("the gateway did not acknowledge the upload in 30 minutes, but may have it")


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Makes a redirect an error; upstream would repeat the request as a GET."""


def _try(request: Request) -> float | None:
    """Returns None after success, else the least pause in seconds."""
    try:
        with build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            if answer.status == 202:
                return None
            raise Refused(answer.status, "")
    except HTTPError as error:
        with error:
            if error.code in (408, 429) or error.code >= 500:
                after = error.headers.get("Retry-After", "")
                return float(after) if after.isdecimal() else 0.0
            raise Refused(error.code, _reason(error)) from None
    except InvalidURL:
        raise
    except (OSError, HTTPException):
        return 0.0


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read(1000))["reason"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return ""
