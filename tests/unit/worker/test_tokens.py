"""Tokens by client credentials: requested by RFC 6749, renewed ahead, and never waited for twice."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from kafka.net.sasl.oauth import SaslMechanismOAuth

from tests.support.tables import rows
from worker.config import ConfigError, parse
from worker.kafka.client import quirks
from worker.kafka.client.errors import remedy
from worker.login import Credentials, TokenError, Tokens, tokens_of
from worker.login.tokens import fetch

SECRET = "p=#s s"


class Endpoint:
    """Gives scripted answers, and records its requests."""

    def __init__(self):
        self.asked = []
        self.replies = lambda n: (200, {"access_token": f"token-{n}", "expires_in": 3600})
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append((self.headers["Authorization"], parse_qs(body)))
                status, answer = endpoint.replies(len(endpoint.asked))
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{endpoint.port}/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def credentials(self, **more):
        return Credentials(f"http://127.0.0.1:{self.port}/token", "me:", SECRET, **more)


@pytest.fixture
def endpoint():
    with Endpoint() as endpoint:
        yield endpoint


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_tokens_are_requested_as_the_rfc_defines(endpoint):
    given = Tokens(endpoint.credentials(scope="reports more"))
    assert [given.token() for _ in range(3)] == ["token-1"] * 3
    ((login, body),) = endpoint.asked
    assert body == {"grant_type": ["client_credentials"], "scope": ["reports more"]}
    # both are encoded as in a form, so that a colon in a name separates nothing (section 2.3.1)
    assert base64.b64decode(login.removeprefix("Basic ")).decode() == "me%3A:p%3D%23s%20s"
    assert SECRET not in repr(endpoint.credentials())


def test_the_kafka_client_uses_the_tokens(endpoint):
    quirks.mend_connections()
    mechanism = SaslMechanismOAuth(sasl_oauth_token_provider=tokens_of(endpoint.credentials()))
    assert mechanism.auth_bytes() == b"n,,\x01auth=Bearer token-1\x01\x01"
    assert tokens_of(endpoint.credentials()) is tokens_of(endpoint.credentials())


def test_a_token_is_renewed_before_it_expires(endpoint):
    endpoint.replies = lambda n: (200, {"access_token": f"token-{n}", "expires_in": 1})
    given = Tokens(endpoint.credentials())
    seen = [given.token()]
    started = time.monotonic()
    while len(set(seen)) < 4:
        seen.append(given.token())
        assert seen[-1] >= seen[-2]
        assert time.monotonic() - started < 30
        time.sleep(0.02)
    # no token is requested without a call
    until(lambda: not given._renewing)
    many = len(endpoint.asked)
    assert given.token() >= seen[-1]
    assert len(endpoint.asked) <= many + 1


def test_a_valid_token_is_used_while_the_endpoint_fails(endpoint, monkeypatch):
    monkeypatch.setattr("worker.login.tokens._RENEWED_AT", 0.001)
    endpoint.replies = lambda n: (200, {"access_token": "good", "expires_in": 60}) if n == 1 else (503, b"")
    given = Tokens(endpoint.credentials())
    assert given.token() == "good"
    until(lambda: len(endpoint.asked) > 1)
    until(lambda: given._failure is not None)
    assert given.token() == "good"


def test_without_a_token_later_requests_fail_at_once(endpoint):
    endpoint.replies = lambda n: (401, {"error": "invalid_client"})
    given = Tokens(endpoint.credentials())
    for _ in range(100):  # each in no time: the thread that asks has others to serve
        with pytest.raises(TokenError, match=r"refuses: HTTP 401 \(invalid_client\)$"):
            given.token()
    assert len(endpoint.asked) < 50


@pytest.mark.parametrize(
    ("status", "answer", "said", "hint"),
    [
        (
            401,
            {"error": "invalid_client"},
            "refuses: HTTP 401 (invalid_client)",
            "kafka.sasl_password",
        ),
        (400, {"error": "invalid_scope"}, "refuses: HTTP 400 (invalid_scope)", "sasl_oauthbearer_scope"),
        (400, {"error": f"no {SECRET}"}, "refuses: HTTP 400", "sasl_oauthbearer_token_endpoint_url"),
        (302, b"", "refuses: HTTP 302", "sasl_oauthbearer_token_endpoint_url"),
        (200, b"<html>", "without a valid access_token", "sasl_oauthbearer_token_endpoint_url"),
        (200, b"[" * 100_000, "without a valid access_token", "token_endpoint_url"),
        (200, {"access_token": "a\x01b"}, "without a valid access_token", "token_endpoint_url"),
        (200, {"access_token": "a", "expires_in": 0}, "; allowed is at least 1 s", "token_endpoint_url"),
        (200, {"access_token": "a", "expires_in": "soon"}, "; allowed is at least 1 s", "token_endpoint_url"),
    ],
)
def test_an_invalid_answer_is_reported_with_a_remedy(endpoint, status, answer, said, hint):
    endpoint.replies = lambda n: (status, answer)
    with pytest.raises(TokenError) as caught:
        Tokens(endpoint.credentials()).token()
    text = str(caught.value)
    assert text.startswith(f"the token endpoint at 127.0.0.1:{endpoint.port} ")
    assert text.endswith(said)
    assert SECRET not in text
    assert hint in remedy(text)
    assert len(endpoint.asked) == 1  # no redirect took the secret elsewhere


def test_a_token_without_an_expiry_is_refreshed_regularly(endpoint):
    endpoint.replies = lambda n: (200, {"access_token": "a", "expires_in": 1e300})
    assert fetch(endpoint.credentials()) == ("a", 86_400)
    endpoint.replies = lambda n: (200, {"access_token": "a"})  # without a lifetime
    assert fetch(endpoint.credentials()) == ("a", 60)


def test_an_unreachable_endpoint_is_reported():
    with Endpoint() as gone:
        credentials = gone.credentials()
    with pytest.raises(TokenError, match=r"does not answer: .*refused"):
        Tokens(credentials).token()


def test_a_silent_endpoint_times_out(endpoint, monkeypatch):
    monkeypatch.setattr("worker.login.tokens.TIMEOUT_SECONDS", 0.2)
    free = threading.Event()
    endpoint.replies = lambda n: (200, b"" if free.wait(30) else b"never")
    try:
        with pytest.raises(TokenError, match=r"does not answer"):
            Tokens(endpoint.credentials()).token()
    finally:
        free.set()


# --- as it is configured --------------------------------------------------------------------------------------------

STREAM = '\n[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'
KEYS = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://login.example:8443/token?tenant=1",
    "sasl_username": "me",
    "sasl_password": SECRET,
}


def configured(**changes):
    lines = [f'{key} = "{value}"' for key, value in (KEYS | changes).items() if value is not None]
    return parse("[kafka]\n" + "\n".join(lines) + STREAM)


def test_the_configured_credentials_are_used():
    kafka = configured(sasl_oauthbearer_scope="reports").kafka
    settings = kafka.client()
    assert settings["sasl_mechanism"] == "OAUTHBEARER"
    assert "sasl_plain_username" not in settings
    wanted = Credentials(KEYS["sasl_oauthbearer_token_endpoint_url"], "me", SECRET, "reports")
    assert settings["sasl_oauth_token_provider"] is tokens_of(wanted)
    assert SECRET not in repr(kafka)


ENDPOINT = "sasl_oauthbearer_token_endpoint_url"
URL = "a text given; allowed is https://host:port/path, or http://, without a user or password"
CONFLICTS = f"""
{ENDPOINT} | | sasl_mechanism: sasl_mechanism OAUTHBEARER needs {ENDPOINT}
{ENDPOINT} | login.example/token | {ENDPOINT}: {URL}
{ENDPOINT} | https://me:{SECRET}@h/token | {ENDPOINT}: {URL}
{ENDPOINT} | file:///etc/passwd | {ENDPOINT}: {URL}
{ENDPOINT} | https://h/#x | {ENDPOINT}: {URL}
sasl_mechanism | PLAIN | {ENDPOINT}: {ENDPOINT} needs sasl_mechanism OAUTHBEARER, not PLAIN
sasl_password | | security_protocol: security_protocol SASL_SSL needs sasl_mechanism, sasl_username and sasl_password
security_protocol | SSL | sasl_mechanism: sasl_mechanism needs security_protocol SASL_SSL or SASL_PLAINTEXT, not SSL
"""


@pytest.mark.parametrize(("key", "value", "said"), rows(CONFLICTS))
def test_conflicting_settings_are_refused(key, value, said):
    with pytest.raises(ConfigError) as caught:
        configured(**{key: value or None})
    assert str(caught.value) == f"kafka.{said}"
