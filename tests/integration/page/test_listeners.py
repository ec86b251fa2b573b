"""Connection errors of Kafka's TLS and logins name their remedy."""

import contextlib
import os
import pty
import re
import secrets
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.local.services import free_ports
from tests.support.harness import TIMEOUT_SECONDS, Forked, until
from tests.support.harness.silent import silent
from worker import check, config
from worker.kafka.client import brokers, quirks

pytestmark = [pytest.mark.integration, pytest.mark.long]

WORKER = Path(sys.executable).parent / "ldp-worker"
WRONG = f"wrong-{secrets.token_hex(8)}"
STREAM = """
[[streams]]
name = "s"
topic = "t"
protocol = "grr"
epsilon = "1"
domain_size = 3
"""


def configure(folder, secure, **kafka):
    """Writes a configuration with these `kafka` keys."""
    lines = [f'{key} = "{value}"' for key, value in kafka.items()]
    toml = folder / "worker.toml"
    redis = f'[redis]\nurl = "{secure.running.redis.address}"\n[http]\nport = 0\n'
    toml.write_text("\n".join(["[kafka]", *lines, redis, STREAM]))
    return toml


def own(secure, name):
    """Returns the keys of a client certificate."""
    return {
        f"ssl_{kind}file": secure.certificates.path(f"{name}.{end}")
        for kind, end in (("cert", "pem"), ("key", "key"))
    }


LOGIN = "correct kafka.sasl_username and kafka.sasl_password, or kafka.sasl_mechanism"
PLAIN = {"security_protocol": "PLAINTEXT"}
CASES = {
    "a wrong password": (
        ("LOGIN", "PLAIN"),
        lambda secure: {"sasl_password": WRONG},
        "Invalid username or password",
        LOGIN,
    ),
    "a wrong secret": (
        ("LOGINS", "OAUTHBEARER"),
        lambda secure: {"sasl_password": WRONG},
        "refuses: HTTP 401 (invalid_client)",
        "correct kafka.sasl_username and kafka.sasl_password",
    ),
    "a wrong password by SCRAM": (
        ("LOGINS", "SCRAM-SHA-512"),
        lambda secure: {"sasl_password": WRONG},
        "SaslAuthenticationFailed",
        LOGIN,
    ),
    "a token for somebody else": (
        ("LOGINS", "OAUTHBEARER"),
        lambda secure: {"sasl_oauthbearer_scope": "reports for others"},
        "invalid_token",
        "configure the brokers to accept these tokens",
    ),
    "another mechanism": (
        ("LOGIN", "SCRAM-SHA-512"),
        lambda secure: {},
        "UnsupportedSaslMechanism",
        "set kafka.sasl_mechanism to a mechanism that the brokers support",
    ),
    "no token endpoint": (
        ("LOGINS", "OAUTHBEARER"),
        lambda secure: {"sasl_oauthbearer_token_endpoint_url": f"https://127.0.0.1:{free_ports(1)[0]}/token"},
        "does not answer",
        "start the token endpoint, or correct kafka.sasl_oauthbearer_token_endpoint_url",
    ),
    "no certificate": (
        ("MTLS", ""),
        lambda secure: {"ssl_certfile": None, "ssl_keyfile": None},
        "alert",
        "the brokers reject this client's certificate, or require one",
    ),
    "a login where none is asked": (
        ("LOGIN", "PLAIN"),
        lambda secure: at(secure, "PLAINTEXT"),
        "IllegalSaslState",
        "this listener has no login: set kafka.security_protocol to PLAINTEXT or SSL",
    ),
    "no login": (
        ("PLAINTEXT", ""),
        lambda secure: at(secure, "LOGIN"),
        "socket disconnected",
        "the brokers close the connection, and may require TLS or a login",
    ),
    "no TLS": (
        ("PLAINTEXT", ""),
        lambda secure: at(secure, "SSL"),
        "Invalid frame length",
        "this listener seems to use TLS, or is not",
    ),
    "TLS to a plaintext port": (
        ("SSL", ""),
        lambda secure: at(secure, "PLAINTEXT"),
        "Handshake failed",
        "this listener seems to have no TLS: correct kafka.security_protocol",
    ),
    "another authority": (
        ("SSL", ""),
        lambda secure: {"ssl_cafile": secure.certificates.path("other.pem")},
        "certificate verify failed",
        "set kafka.ssl_cafile to the authority that signed the brokers' certificates",
    ),
    "a certificate that is over": (
        ("EXPIRED", ""),
        lambda secure: {},
        "certificate has expired",
        "renew the brokers' certificates",
    ),
    "another host's certificate": (
        ("ELSEWHERE", ""),
        lambda secure: {},
        "certificate is not valid for '127.0.0.1'",
        "set kafka.bootstrap_servers to the host names in the brokers' certificates",
    ),
    "TLS to a port that says nothing": (
        ("SSL", ""),
        lambda secure: {"bootstrap_servers": "silent"},
        "no TLS handshake in 5 s",
        "this listener seems to have no TLS",
    ),
    "nobody": (
        ("PLAINTEXT", ""),
        lambda secure: {"bootstrap_servers": f"127.0.0.1:{free_ports(1)[0]}"},
        "ECONNREFUSED",
        "start the brokers, or correct kafka.bootstrap_servers",
    ),
}
"""Fault -> the listener and mechanism, the wrong keys, the error and the remedy."""


def at(secure, listener):
    return {"bootstrap_servers": f"127.0.0.1:{secure.ports[listener]}"}


def spoiled(case, secure, stack):
    """Returns the `kafka` keys of a case."""
    (listener, mechanism), spoil, *_ = CASES[case]
    keys = {
        key: value for key, value in (secure.client(listener, mechanism) | spoil(secure)).items() if value
    }
    if keys["bootstrap_servers"] == "silent":
        keys["bootstrap_servers"] = f"127.0.0.1:{stack.enter_context(silent())}"
    return keys


@pytest.fixture
def way(request, secure, tmp_path):
    """A wrong configuration, its error and its remedy."""
    with contextlib.ExitStack() as stack:
        yield configure(tmp_path, secure, **spoiled(request.param, secure, stack)), *CASES[request.param][2:]


@pytest.mark.parametrize("way", CASES, indirect=True)
def test_connection_errors_name_the_remedy(way, secure, monkeypatch):
    toml, reason, advice = way
    for seconds in (0.5, 3.0, 20.0):  # on a machine that has much to do a broker answers later
        monkeypatch.setattr(brokers, "TIMEOUT_SECONDS", seconds)
        (found,) = [f for f in check.findings(config.load(toml, {})) if f.subject == "brokers"]
        if reason in found.text:
            break
    assert found.level is check.Level.ERROR
    assert reason in found.text
    assert found.text.startswith("no answer from" if "ECONNREFUSED" in reason else "rejected by")
    assert advice in found.hint
    assert not {secure.password, secure.tokens.secret, WRONG} & set(
        re.findall(r"[\w-]+", found.text + found.hint)
    )


COUNTS = ("--counts", Path(__file__).parents[3] / "deploy/demo/emoji.csv", "--column", "count_2020_06_16")
COMMANDS = [
    ("check",),
    ("create-topics",),
    ("watch", "--once"),
    ("audit",),
    ("simulate", *COUNTS, "--users", "1"),
]


@pytest.mark.parametrize("way", ["TLS to a port that says nothing"], indirect=True)
def test_every_command_times_out_on_a_silent_broker(way):
    toml, reason, advice = way
    toml.write_text(toml.read_text().replace("domain_size = 3", "domain_size = 845"))
    started = [
        subprocess.Popen(
            [WORKER, command, "--config", toml, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for command, *options in COMMANDS
    ]  # fmt: skip
    limit = brokers.TIMEOUT_SECONDS + quirks.HANDSHAKE_SECONDS + 60
    for process in started:
        said = " ".join(process.communicate(timeout=limit)[0].split())
        assert process.returncode == 1
        assert reason in said
        assert advice in said


RUN = ("a wrong password", "no token endpoint", "no certificate", "no TLS", "another authority")


def test_run_names_the_remedy_and_retries(secure, tmp_path):
    with contextlib.ExitStack() as stack:
        workers = {}
        for number, case in enumerate(RUN):
            folder = tmp_path / str(number)
            folder.mkdir()
            toml = configure(folder, secure, **spoiled(case, secure, stack))
            workers[case] = worker = Forked.launch(toml, folder / "log")
            stack.callback(worker.kill)
        for case, worker in workers.items():
            *_, reason, advice = CASES[case]
            until(lambda worker=worker: worker.events("kafka.unavailable"), f"{case}: it says so")
            event = worker.events("kafka.unavailable")[0]
            assert reason in event["error"], case
            assert advice in event["remedy"], case
            assert worker.alive()
            assert worker.metric("errors_total", step="connect") > 0
            assert [sample.value for sample in worker.samples("publisher")] == [0]
            log = worker.log.read_text()
            assert not any(word in log for word in (WRONG, secure.password, secure.tokens.secret))


def test_an_encrypted_key_never_prompts_for_a_password(secure, tmp_path):
    encrypted = ("-v2", "aes256", "-passout", "pass:word", "-out", "encrypted.key")
    secure.certificates.openssl("pkcs8", "-topk8", "-in", "client.key", *encrypted)
    keys = secure.client("BOTH") | {"ssl_keyfile": str(secure.certificates.path("encrypted.key"))}
    toml = configure(tmp_path, secure, **keys)
    code, shown = on_a_terminal(WORKER, "check", "--config", toml)
    said = "kafka.ssl_keyfile: an encrypted key; a key without a password is needed"
    assert (code, [re.sub(r"\S+:\d+: ", "", shown.strip())]) == (2, [f"ldp-worker: {said}"])


def on_a_terminal(*command):
    """Runs a command on a pseudo-terminal; returns its exit code and output."""
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
