"""Kafka and Redis with a listener for each TLS and SASL setting.

Each start makes a private certificate authority, certificates, keys, passwords and a token endpoint in a temporary
folder. It needs openssl.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from deploy.local import services

LISTENERS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "LOGINS": "SASL_SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}
"""Listeners in addition to the plaintext listener.

MTLS requires a client certificate. LOGINS accepts all SASL mechanisms over TLS, and LOGIN passwords without TLS. BOTH
requires a password and a certificate. EXPIRED has an expired certificate, ELSEWHERE the certificate of another host.
"""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER = "me"
"""User with a password and all rights."""
CLIENT = "worker"
"""Client of the token endpoint, with all rights."""
AUDIENCE, ISSUER = "kafka", "tests"
_KAFKA = "org.apache.kafka.common.security"


class Certificates:
    """A private certificate authority and its certificates, as PEM files.

    `ca.pem` is the authority, and `other.pem` is another. Each certificate `NAME.pem` has a key `NAME.key`. `broker`,
    `elsewhere` and `expired` are server certificates; `client` and `stranger` are client certificates. The other
    authority signed `stranger`. `tokens.key` signs tokens.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        here = "subjectAltName=IP:127.0.0.1,DNS:localhost"
        for name in ("ca", "other"):
            self.openssl("req", "-x509", *_NEW, "-days", "2", *_named(name), "-out", f"{name}.pem")
        self._sign("broker", here)
        self._sign("elsewhere", "subjectAltName=DNS:elsewhere.example")
        self._sign("expired", here, days=-1)
        self._sign("client", "extendedKeyUsage=clientAuth")
        self._sign("stranger", "extendedKeyUsage=clientAuth", authority="other")
        self.openssl("genrsa", "-out", "tokens.key", "2048")
        for name in ("broker", "elsewhere", "expired"):  # the broker reads key and certificate from one file
            self.path(f"{name}.store.pem").write_text(
                self.path(f"{name}.key").read_text() + self.path(f"{name}.pem").read_text()
            )

    def path(self, name: str) -> Path:
        """Returns the path of a file in the folder."""
        return self.folder / name

    def openssl(self, *arguments: str, given: bytes | None = None) -> bytes:
        """Runs openssl and returns its output."""
        found = services.program("openssl", "openssl")
        if found is None:
            raise services.UnavailableError("there is no openssl on PATH; install it to make certificates")
        done = subprocess.run(
            [found, *arguments], cwd=self.folder, input=given, capture_output=True, check=False
        )
        if done.returncode != 0:
            raise services.UnavailableError(f"openssl {arguments[0]} failed: {done.stderr.decode()}")
        return done.stdout

    def _sign(self, name: str, extension: str, *, authority: str = "ca", days: int = 2) -> None:
        """Makes a key, and a certificate that an authority signed."""
        self.openssl("req", *_NEW, *_named(name), "-out", f"{name}.request")
        self.path(f"{name}.extension").write_text(extension)
        signed = f"-CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days {days}".split()
        out = ("-extfile", f"{name}.extension", "-out", f"{name}.pem")
        self.openssl("x509", "-req", "-in", f"{name}.request", *signed, *out)


_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _named(name: str) -> tuple[str, ...]:
    return "-subj", f"/CN={name}", "-keyout", f"{name}.key"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenEndpoint:
    """Issues tokens for client credentials over TLS; a context manager."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self.secret, self.seconds, self.given, self.down = secrets.token_hex(8), 300, 0, False
        modulus = certificates.openssl("rsa", "-in", "tokens.key", "-noout", "-modulus").decode().strip()
        n = bytes.fromhex(modulus.partition("=")[2])
        key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": _base64(n), "e": "AQAB"}
        certificates.path("jwks.json").write_text(json.dumps({"keys": [key]}))
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, answer = endpoint.answer(self.headers.get("Authorization", ""), parse_qs(body))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.path("broker.pem"), certificates.path("broker.key"))
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/token"

    def answer(self, login: str, body: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Returns the status and the JSON object of a response."""
        if self.down:
            return 503, {"error": "temporarily_unavailable"}
        if login != "Basic " + base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode():
            return 401, {"error": "invalid_client"}
        if body.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        (scope,) = body.get("scope", ["reports"])
        if scope.split()[:1] != ["reports"]:
            return 400, {"error": "invalid_scope"}
        self.given += 1
        audience = AUDIENCE if scope == "reports" else "others"
        return 200, {
            "access_token": self._signed(audience),
            "token_type": "Bearer",
            "expires_in": self.seconds,
        }

    def _signed(self, audience: str) -> str:
        """Returns a signed token of `CLIENT` for an audience."""
        now = int(time.time())
        claims = {"sub": CLIENT, "iss": ISSUER, "aud": audience, "iat": now, "exp": now + self.seconds}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": "1"}, claims | {"scope": "reports"})
        signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        sign = ("dgst", "-sha256", "-sign", "tokens.key")
        return f"{signed}.{_base64(self._certificates.openssl(*sign, given=signed.encode()))}"

    def __enter__(self) -> TokenEndpoint:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class Secure:
    """A running Kafka and Redis, with a listener for each security setting."""

    running: services.Services
    ports: Mapping[str, int]
    certificates: Certificates
    tokens: TokenEndpoint
    password: str

    @classmethod
    @contextlib.contextmanager
    def start(cls, say: services.Say = print, *, users: Mapping[str, str] | None = None) -> Iterator[Secure]:
        """Makes certificates and passwords, and starts both services."""
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ldp-secure."))
            password = secrets.token_hex(8)
            certificates = Certificates(Path(folder))
            tokens = stack.enter_context(TokenEndpoint(certificates))
            ports = dict(zip(LISTENERS, services.free_ports(len(LISTENERS)), strict=True))
            more = _listeners(ports, certificates, {USER: password} | dict(users or {}), password)
            running = stack.enter_context(services.Services.start(say, more=more))
            reached = {"PLAINTEXT": running.kafka.port} | ports
            yield cls(running, reached, certificates, tokens, password)

    def client(self, listener: str, mechanism: str = "PLAIN") -> dict[str, str]:
        """Returns the configuration keys of `[kafka]` for a listener."""
        protocol = LISTENERS.get(listener, listener)
        keys = {"bootstrap_servers": f"127.0.0.1:{self.ports[listener]}", "security_protocol": protocol}
        if protocol.endswith("SSL"):
            keys["ssl_cafile"] = str(self.certificates.path("ca.pem"))
        if listener in ("MTLS", "BOTH"):
            keys |= {
                "ssl_certfile": str(self.certificates.path("client.pem")),
                "ssl_keyfile": str(self.certificates.path("client.key")),
            }
        if protocol.startswith("SASL"):
            keys["sasl_mechanism"] = mechanism
        if protocol.startswith("SASL") and mechanism == "OAUTHBEARER":
            keys |= {
                "sasl_oauthbearer_token_endpoint_url": self.tokens.url,
                "sasl_oauthbearer_scope": "reports",
                "sasl_username": CLIENT,
                "sasl_password": self.tokens.secret,
            }
        elif protocol.startswith("SASL"):
            keys |= {"sasl_username": USER, "sasl_password": self.password}
        return keys


def _listeners(
    ports: Mapping[str, int], certificates: Certificates, users: Mapping[str, str], password: str
) -> services.Listeners:
    stores = {"EXPIRED": "expired", "ELSEWHERE": "elsewhere"}
    names = " ".join(f'user_{name}="{word}"' for name, word in users.items())
    lines = ["ssl.keystore.type=PEM", "ssl.truststore.type=PEM", "sasl.enabled.mechanisms=PLAIN"]
    for listener, protocol in LISTENERS.items():
        own = f"listener.name.{listener.lower()}"
        if protocol.endswith("SSL"):
            store = certificates.path(f"{stores.get(listener, 'broker')}.store.pem")
            lines.append(f"{own}.ssl.keystore.location={store}")
        if listener in ("MTLS", "BOTH"):
            lines.append(f"{own}.ssl.client.auth=required")
            lines.append(f"{own}.ssl.truststore.location={certificates.path('ca.pem')}")
        if protocol.startswith("SASL"):
            lines.append(f"{own}.plain.sasl.jaas.config={_KAFKA}.plain.PlainLoginModule required {names};")
    logins = "listener.name.logins"
    scram, oauth = f"{_KAFKA}.scram.ScramLoginModule", f"{_KAFKA}.oauthbearer"
    lines += [
        f"{logins}.sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        *(f"{logins}.scram-sha-{bits}.sasl.jaas.config={scram} required;" for bits in (256, 512)),
        f"{logins}.oauthbearer.sasl.jaas.config={oauth}.OAuthBearerLoginModule required;",
        f"{logins}.oauthbearer.sasl.server.callback.handler.class={oauth}.OAuthBearerValidatorCallbackHandler",
        f"sasl.oauthbearer.jwks.endpoint.url={certificates.path('jwks.json').as_uri()}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
        f"sasl.oauthbearer.expected.issuer={ISSUER}",
        # a client whose token has expired must authenticate again with a new one
        "connections.max.reauth.ms=3600000",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:ANONYMOUS;User:CN=client;User:{USER};User:{CLIENT}",
    ]
    salted = (f"SCRAM-SHA-{bits}=[name={USER},password={password}]" for bits in (256, 512))
    return services.Listeners(
        {name: (protocol, ports[name]) for name, protocol in LISTENERS.items()},
        "\n".join(lines) + "\n",
        tuple(word for one in salted for word in ("--add-scram", one)),
        # without this property, the broker refuses to read keys from any URL
        (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={certificates.path('jwks.json').as_uri()}",),
    )
