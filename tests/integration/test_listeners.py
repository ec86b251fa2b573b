"""Listeners with TLS and with a login: what fits works, what does not is said in time, with the right advice.

A real broker with one listener of each kind; certificates are made here.
"""

import contextlib
import os
import pty
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from deploy.local.services import Services, free_ports, program
from tests.integration.harness import TIMEOUT_SECONDS, Worker, until
from worker import check, config
from worker.kafka import brokers, quirks, topics

pytestmark = pytest.mark.integration

WORKER = Path(sys.executable).parent / "ldp-worker"
PASSWORD, WRONG = (f"{word}-{secrets.token_hex(8)}" for word in ("right", "wrong"))
STREAM = """
[[streams]]
name = "s"
topic = "t"
protocol = "grr"
epsilon = "1"
domain_size = 3
"""


@dataclass(frozen=True)
class Secured:
    """A broker's listeners, by port, and the folder of the certificates."""

    folder: Path
    redis: str
    plain: int
    login: int
    tls: int
    both: int


def openssl(folder, *arguments):
    subprocess.run([program("openssl", "openssl"), *arguments], cwd=folder, check=True, capture_output=True)


def make_certificates(folder):
    """An authority, a certificate of 127.0.0.1 with its key, plain and encrypted, and another authority."""
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("ca", "other"):
        openssl(
            folder, "req", "-x509", *new, "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
            f"{name}.pem",
        )  # fmt: skip
    openssl(folder, "req", *new, "-subj", "/CN=broker", "-keyout", "key.pem", "-out", "request.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        folder, "x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-extfile", "names", "-out", "cert.pem",
    )  # fmt: skip
    openssl(
        folder, "pkcs8", "-topk8", "-in", "key.pem", "-v2", "aes256", "-passout", f"pass:{PASSWORD}", "-out",
        "encrypted.pem",
    )  # fmt: skip
    (folder / "keystore.pem").write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker of this module's own, with a listener for each way in."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    with Services.start() as services:
        login, tls, both = free_ports(3)
        properties = services.folder / "kafka.properties"
        text = properties.read_text()
        more = f",LOGIN://127.0.0.1:{login},TLS://127.0.0.1:{tls},BOTH://127.0.0.1:{both}"
        text = re.sub(r"^(listeners=.*)$", rf"\1{more}", text, flags=re.MULTILINE)
        text = text.replace(
            "CONTROLLER:PLAINTEXT", "CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL,BOTH:SASL_SSL"
        )
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        for name in ("login", "both"):
            text += f'listener.name.{name}.plain.sasl.jaas.config={module} required user_me="{PASSWORD}";\n'
        # who comes without a name may do all, who has one may do what nothing forbids
        text += "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        text += "super.users=User:ANONYMOUS\nallow.everyone.if.no.acl.found=true\n"
        text += "sasl.enabled.mechanisms=PLAIN\nssl.keystore.type=PEM\n"
        text += f"ssl.keystore.location={folder}/keystore.pem\n"
        text += "listener.name.both.ssl.client.auth=required\nlistener.name.both.ssl.truststore.type=PEM\n"
        text += f"listener.name.both.ssl.truststore.location={folder}/ca.pem\n"
        properties.write_text(text)
        services.kafka.restart()
        yield Secured(folder, services.redis.address, services.kafka.port, login, tls, both)


@contextlib.contextmanager
def silent():
    """A listener that takes connections and never says a word, as a frozen broker does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def take():
            with contextlib.suppress(OSError):
                while True:
                    held.append(server.accept()[0])

        thread = threading.Thread(target=take)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in held:
            connection.close()


def configure(folder, secured, port, **kafka):
    lines = [
        f'{key} = "{value}"' for key, value in ({"bootstrap_servers": f"127.0.0.1:{port}"} | kafka).items()
    ]
    toml = folder / "worker.toml"
    redis = f'[redis]\nurl = "{secured.redis}"\n[http]\nport = 0\n'
    toml.write_text("\n".join(["[kafka]", *lines, redis, STREAM]))
    return toml


def login(password, mechanism="PLAIN", protocol="SASL_PLAINTEXT"):
    return {
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_username": "me",
        "sasl_password": password,
    }


CASES = {
    "a wrong password": (
        "login",
        lambda folder: login(WRONG),
        "Invalid username or password",
        "correct kafka.sasl_username and kafka.sasl_password, or kafka.sasl_mechanism",
    ),
    "a wrong password over TLS": (
        "both",
        lambda folder: with_key(folder, PASSWORD) | {"sasl_password": WRONG},
        "Invalid username or password",
        "correct kafka.sasl_username and kafka.sasl_password, or kafka.sasl_mechanism",
    ),
    "no certificate": (
        "both",
        lambda folder: login(PASSWORD, protocol="SASL_SSL") | {"ssl_cafile": folder / "ca.pem"},
        "alert",
        "the brokers refuse this client's certificate, or want one",
    ),
    "another mechanism": (
        "login",
        lambda folder: login(PASSWORD, "SCRAM-SHA-512"),
        "UnsupportedSaslMechanism",
        "set kafka.sasl_mechanism to one that the brokers know",
    ),
    "a login where none is asked": (
        "plain",
        lambda folder: login(PASSWORD),
        "IllegalSaslState",
        "this listener asks for no login: set kafka.security_protocol to PLAINTEXT or SSL",
    ),
    "no login": (
        "login",
        lambda folder: {},
        "socket disconnected",
        "correct kafka.security_protocol, they may want",
    ),
    "no TLS": (
        "tls",
        lambda folder: {},
        "Invalid frame length",
        "this listener seems to speak TLS, or is no",
    ),
    "TLS to a plaintext port": (
        "plain",
        lambda folder: {"security_protocol": "SSL"},
        "Handshake failed",
        "this listener seems to speak no TLS: correct kafka.security_protocol",
    ),
    "another authority": (
        "tls",
        lambda folder: {"security_protocol": "SSL", "ssl_cafile": folder / "other.pem"},
        "certificate verify failed",
        "let kafka.ssl_cafile name the authority that signed the brokers' certificates",
    ),
    "TLS to a port that says nothing": (
        "silent",
        lambda folder: {"security_protocol": "SSL"},
        "no TLS from the other side in 5 s",
        "this listener seems to speak no TLS",
    ),
    "nobody": (
        "none",
        lambda folder: {},
        "ECONNREFUSED",
        "start the brokers, or correct kafka.bootstrap_servers",
    ),
}


@pytest.fixture
def way(request, secured, tmp_path):
    """A configuration that does not fit, and what is to be said about it."""
    port, settings, reason, advice = CASES[request.param]
    with contextlib.ExitStack() as stack:
        if port == "silent":
            number = stack.enter_context(silent())
        else:
            number = free_ports(1)[0] if port == "none" else getattr(secured, port)
        yield configure(tmp_path, secured, number, **settings(secured.folder)), reason, advice


@pytest.mark.parametrize("way", CASES, indirect=True)
def test_point_17_what_does_not_fit_is_said_with_what_to_do(way, monkeypatch):
    toml, reason, advice = way
    for seconds in (2.0, 20.0):  # on a machine that has much to do a broker answers later
        monkeypatch.setattr(brokers, "TIMEOUT_SECONDS", seconds)
        (found,) = [f for f in check.findings(config.load(toml, {})) if f.subject == "brokers"]
        if reason in found.text:
            break
    assert found.level is check.Level.ERROR
    assert reason in found.text
    assert found.text.startswith("no answer from" if "ECONNREFUSED" in reason else "not let in by")
    assert advice in found.todo
    assert not {PASSWORD, WRONG} & set(re.findall(r"[\w-]+", found.text + found.todo))


COUNTS = ("--counts", Path(__file__).parents[2] / "ldp/experiments/emoji.csv", "--column", "count_2020_06_16")
COMMANDS = [
    ("check",),
    ("create-topics",),
    ("watch", "--once"),
    ("audit",),
    ("simulate", *COUNTS, "--users", "1"),
]


@pytest.mark.parametrize("way", ["TLS to a port that says nothing"], indirect=True)
def test_point_17_every_command_ends_in_time(way):
    toml, reason, advice = way
    toml.write_text(toml.read_text().replace("domain_size = 3", "domain_size = 845"))
    started = [
        subprocess.Popen(
            [WORKER, command, "--config", toml, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for command, *options in COMMANDS
    ]  # fmt: skip
    limit = (
        brokers.TIMEOUT_SECONDS + quirks.HANDSHAKE_SECONDS + 60
    )  # and to start, on a machine that does much else
    for process in started:
        said = " ".join(process.communicate(timeout=limit)[0].split())
        assert process.returncode == 1
        assert reason in said
        assert advice in said


@pytest.mark.parametrize("way", ["a wrong password", "TLS to a port that says nothing"], indirect=True)
def test_point_17_run_says_it_and_goes_on_trying(way, tmp_path):
    toml, reason, advice = way
    with contextlib.ExitStack() as stack:
        worker = Worker.launch(toml, tmp_path / "log")
        stack.callback(worker.kill)
        until(lambda: worker.events("kafka.unavailable"), "it says so")
        event = worker.events("kafka.unavailable")[0]
        assert reason in event["error"]
        assert event["todo"].startswith(advice)
        assert worker.alive()
        assert WRONG not in worker.log.read_text()


# --- what a login may not do ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def closed(admin, kind, name, operation):
    """Closes something to the login while the body of a ``with`` runs."""
    pattern = ResourcePattern(kind, name)
    admin.create_acls([ACL("User:me", "*", operation, ACLPermissionType.DENY, pattern)])
    yield
    admin.delete_acls([ACLFilter("User:me", "*", ACLOperation.ANY, ACLPermissionType.ANY, pattern)])


def said(worker, event, words):
    """Whether an error with these words was logged as an event."""
    return any(words in line["error"] for line in worker.events(event))


def test_point_11_what_the_login_may_not_do_is_said_until_it_may(secured, tmp_path):
    toml = configure(tmp_path, secured, secured.login, **login(PASSWORD))
    loaded = config.load(toml, {})
    (served,) = loaded.streams
    group, identity = loaded.consumer_group(served.stream.name), loaded.transactional_id(served.stream.name)
    with contextlib.ExitStack() as stack:
        admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{secured.plain}")
        stack.callback(admin.close)
        topics.create(admin, loaded, 1, 1)
        with closed(admin, ResourceType.TOPIC, "t", ACLOperation.READ):
            worker = Worker.launch(toml, tmp_path / "log")
            stack.callback(worker.kill)
            until(
                lambda: said(worker, "poll.retry", "topic 't' is closed to this client"),
                "the topic is closed",
            )
            assert not worker.events("topic.missing")
        until(worker.ready, "it serves")
        with contextlib.ExitStack() as later:
            with closed(admin, ResourceType.GROUP, group, ACLOperation.READ):
                until(
                    lambda: said(worker, "serve.retry", "GroupAuthorizationFailedError"),
                    "its group is closed",
                )
                later.enter_context(
                    closed(admin, ResourceType.TRANSACTIONAL_ID, identity, ACLOperation.WRITE)
                )
            until(
                lambda: said(worker, "snapshot.retry", "TransactionalIdAuthorizationFailedError"),
                "it may not publish",
            )
        until(worker.ready, "it serves again")
        assert not worker.events("stream.stopped")


# --- an encrypted key ---------------------------------------------------------------------------------------


def with_key(folder, password=None):
    own = {"ssl_cafile": folder / "ca.pem", "ssl_certfile": folder / "cert.pem"}
    key = {"ssl_keyfile": folder / "encrypted.pem"}
    return login(PASSWORD, protocol="SASL_SSL") | own | key | ({"ssl_password": password} if password else {})


def test_point_17_a_key_with_its_password_opens_a_listener_that_wants_a_certificate(secured, tmp_path):
    loaded = config.load(configure(tmp_path, secured, secured.both, **with_key(secured.folder, PASSWORD)), {})
    with brokers.connect(loaded) as admin:
        assert admin.describe_cluster()["brokers"]


@pytest.mark.parametrize(
    ("password", "said"),
    [
        (None, "kafka.ssl_password: nothing given; the key of kafka.ssl_certfile is encrypted"),
        ("wrong", "kafka.ssl_password: a secret given; it does not open the key of kafka.ssl_certfile"),
    ],
)
def test_point_17_nobody_is_asked_for_the_password_of_a_key(secured, tmp_path, password, said):
    """On a terminal, where OpenSSL would ask."""
    toml = configure(tmp_path, secured, secured.both, **with_key(secured.folder, password))
    for command in ("check", "run"):
        code, shown = on_a_terminal(WORKER, command, "--config", toml)
        assert (code, shown.splitlines()) == (2, [f"ldp-worker: {said}"])


def on_a_terminal(*command):
    """Runs a command that has a terminal of its own; returns its exit code and all that was shown there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], [str(word) for word in command])
    shown, deadline = b"", time.monotonic() + TIMEOUT_SECONDS
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            shown += os.read(terminal, 4096)
    if time.monotonic() >= deadline:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return code, shown.decode()
