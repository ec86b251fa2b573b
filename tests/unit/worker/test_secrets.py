"""No secret is printed: every place for a secret, against every output of the worker."""

import contextlib
import gc
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from click.testing import CliRunner

from worker import cli
from worker.config import ConfigError, parse, redaction
from worker.kafka.client import brokers

LEFT, RIGHT, NUMBER = "Tr0ub4dor", "c0rrectH0rse", "8675309"
"""A secret's parts, neither of which may occur, and a secret in digits."""
SECRET = f"{LEFT}-{RIGHT}"
STREAM = '\n[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'
NOWHERE = "127.0.0.1:1"

REFUSED_URLS = [
    *(f"redis://:{LEFT}{mark}{RIGHT}@localhost:6379/0" for mark in "/?#"),
    *(f"redis://me:{LEFT}{mark}{RIGHT}@localhost:6379/0" for mark in "/?#"),
    *(f"redis://me:12{mark}{RIGHT}@localhost:6379/0" for mark in "/?#"),
    *(f"rediss://me:{LEFT}@{LEFT}{mark}{RIGHT}@localhost" for mark in "/?#"),
    f"redis://me:{LEFT}/{RIGHT} @localhost",
    f"redis://localhost:6379/0?password={SECRET}",
    f"redis://localhost/0?username={LEFT}&password={RIGHT}",
    f"redis://localhost/0#{SECRET}",
    f"redis://me:{SECRET}@localhost/x",
    f"redis://me:{SECRET}@localhost:99999/0",
    f"redis://me:{SECRET}@localhost:port/0",
    f"redis://me:{SECRET}@[::1/0",
    f"redis://me:{LEFT}[{RIGHT}@localhost/0",
    f"redis://me:{SECRET}@",
    f"redis://:{SECRET}",
    f"redis://me:{SECRET}",
    f"redis:/me:{SECRET}@localhost/0",
    f"redis:me:{SECRET}@localhost/0",
    f"redis//me:{SECRET}@localhost/0",
    f"me:{SECRET}@localhost:6379/0",
    f"{SECRET}@localhost:6379",
    f"//me:{SECRET}@localhost",
    f"http://me:{SECRET}@localhost:6379/0",
    f"{LEFT}://{RIGHT}",
    f"{LEFT}:{RIGHT}",
    f" redis://me:{SECRET}@localhost/0",
    f"unix:///run/redis.sock?password={SECRET}",
    f"unix:///run/redis.sock#{SECRET}",
    f"unix:///run/me:{SECRET}@redis.sock",
    f"unix://me:{SECRET}@",
    f"redis://{LEFT},{RIGHT}/0",
    f"redis+sentinel://me:{LEFT}/{RIGHT}@one,two/m",
    f"redis+sentinel://me:{SECRET}@one:26379,two:99999/m",
    f"redis+sentinel://one,two/m?password={SECRET}",
    f"redis+sentinel://one,two/{SECRET}@m",
    f"redis+cluster://me:{SECRET}@one,two/1",
    f"redis+{LEFT}://{RIGHT}",
    SECRET,
    f"{LEFT} {RIGHT}",
]
KEYS = [
    *("bootstrap_servers", "security_protocol", "sasl_mechanism", "sasl_username", "sasl_password"),
    *("ssl_cafile", "ssl_certfile", "ssl_keyfile"),
    *("sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_scope"),
]
REFUSED = {
    **{f"redis.url {url}": f'[redis]\nurl = "{url}"' for url in REFUSED_URLS},
    **{
        f"{table}.{key} = {value}": f"[{table}]\n{key} = {value}"
        for table, keys in {
            "kafka": KEYS,
            "redis": ("url", "password", "sentinel_password", "ssl_cafile", "ssl_certfile", "ssl_keyfile"),
        }.items()
        for key in keys
        for value in (f'["{SECRET}"]', f'{{x = "{SECRET}"}}', f'[["{SECRET}"]]', NUMBER, f"[{NUMBER}]")
    },
    **{f"kafka.{key} = text": f'[kafka]\n{key} = "{SECRET}"' for key in (*KEYS, "sasl_pasword", "password")},
    **{
        f"bootstrap_servers {given}": f"[kafka]\nbootstrap_servers = {given}"
        for address in (f"me:{SECRET}@h:9092", f"SASL_SSL://me:{SECRET}@h:9092", f"me:{LEFT}/{RIGHT}@h:1")
        for given in (f'"{address}"', f'["{address}"]', f'["h:1", "{address}"]', f'"h:1, {address}"')
    },
    **{
        f"{key} = {value}": f"{table}{key} = {value}"
        for table, key in (
            *(("", key) for key in ("group", "commit_every_seconds", "kafka", "redis", "http", "x")),
            *(("[snapshots]\n", "topic"), ("[dead_letters]\n", "topic"), ("[redi]\n", "password")),
            *(("[http]\n", "host"), ("[http]\n", "port"), ("[redis]\n", "pasword")),
        )
        for value in (f'"{LEFT} {RIGHT}"', f'"redis://me:{SECRET}@localhost"', f'["{SECRET}"]')
    },
    **{
        f"the file itself for {key}": f"[kafka]\n{key} = '''-----BEGIN KEY-----\n{SECRET * 40}\n'''"
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
    },
    "a password twice": f'[redis]\nurl = "redis://:{LEFT}@localhost"\npassword = "{RIGHT}"',
    "a password without a login": f'[kafka]\nsasl_password = "{SECRET}"',
    "tables of redis": f'[[redis]]\npassword = "{SECRET}"',
    "a table for a text": f'[redis.password]\nvalue = "{SECRET}"',
    "a table below a text": f'[kafka.sasl_username]\nsasl_password = "{SECRET}"',
    "a URL for a key": f'"redis://me:{SECRET}@localhost" = 1',
    "a URL for a key of redis": f'[redis]\n"redis://me:{SECRET}@localhost" = 1',
    "a password for a key": f"[redis]\n{LEFT} = 1",
    "a password for a table": f'["{SECRET}"]\nx = 1',
    "no quotes": f"[redis]\npassword = {SECRET}",
    "one quote": f'[redis]\npassword = "{SECRET}',
    "a quote inside": f"[redis]\npassword = '{LEFT}'{RIGHT}'",
    "an escape": f'[redis]\npassword = "{LEFT}\\{RIGHT}"',
    "a key twice": f'[redis]\n"{SECRET}" = 1\n"{SECRET}" = 2',
    "a table twice": f'["{SECRET}"]\n["{SECRET}"]',
    "an inline key twice": f'x = {{"{SECRET}" = 1, "{SECRET}" = 2}}',
    "a key below a value": f'[redis]\n"{SECRET}" = 1\n"{SECRET}".x = 2',
    "no line": SECRET,
}
OF_A_STREAM = {
    key: STREAM.replace(old, f'"redis://me:{SECRET}@localhost"')
    for key, old in (("name", '"s"'), ("topic", '"t"'), ("protocol", '"grr"'), ("epsilon", '"1"'))
} | {
    "hash": STREAM.replace("grr", "olh") + f'hash = "redis://me:{SECRET}@localhost"',
    "a file of labels": STREAM.replace("domain_size", "#") + f'labels = "redis://me:{SECRET}@localhost"',
    "another file": STREAM.replace("domain_size", "#") + f'labels = "redis://:{SECRET}"',
    "a password of a stream": STREAM + f'password = "{SECRET}"',
}
VARIABLES = {
    "REDIS": f"redis://me:{SECRET}@localhost",
    "REDIS__URL": f"redis://me:{LEFT}/{RIGHT}@localhost",
    "REDIS__ULR": f"redis://me:{SECRET}@localhost",
    "REDIS_URL": f"redis://me:{SECRET}@localhost",
    "REDIS__URL__X": SECRET,
    "REDIS__PASSWORD_FILE": SECRET,
    "REDIS__PASWORD": SECRET,
    "REDIS_PASSWORD": SECRET,
    "REDIS__PASSWORD__X": SECRET,
    "KAFKA__MEMORY_BYTES": NUMBER,
    "KAFKA": SECRET,
    "KAFKA__BOOTSTRAP_SERVERS": f"localhost:9092, me:{SECRET}@localhost:9092",
    "KAFKA__SASL_PASSWORD": SECRET,
    "KAFKA__SASL_MECHANISM": SECRET,
    "KAFKA__SECURITY_PROTOCOL": SECRET,
    "KAFKA__SSL_KEYFILE": SECRET,
    "PASSWORD": SECRET,
    "GROUP": f"{LEFT} {RIGHT}",
    "HTTP__HOST": f"http://me:{SECRET}@localhost",
    "STREAMS": SECRET,
    "STREAMS__0__NAME": SECRET,
}
LOGIN = f"""
[kafka]
bootstrap_servers = "{NOWHERE}"
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "PLAIN"
sasl_username = "me"
sasl_password = "{SECRET}"
"""
TAKEN = {
    "redis.password": f'{LOGIN}[redis]\nurl = "redis://{NOWHERE}"\npassword = "{SECRET}"',
    **{
        f"redis.url {url}": f'{LOGIN}[redis]\nurl = "{url}"'
        for url in (
            f"redis://me:{SECRET}@{NOWHERE}/3",
            f"redis://:{LEFT}@{RIGHT}@{NOWHERE}",
            f"redis://:{LEFT} {RIGHT}@{NOWHERE}",
            f"redis://:{LEFT}%2F{RIGHT}@{NOWHERE}",
            f"unix://me:{SECRET}@/nowhere/redis.sock",
        )
    },
}
COMMANDS = {
    "check": ("check",),
    "check --json": ("check", "--json"),
    "create-topics": ("create-topics",),
    "audit": ("audit",),
    "watch": ("watch", "--once"),
    "simulate": ("simulate", "--counts", "counts.csv", "--column", "n", "--users", "5"),
}


def assert_unsaid(text):
    assert text
    for part in (LEFT, RIGHT, NUMBER, LEFT.lower(), RIGHT.lower()):
        assert part not in text, text


def said_by(folder, command, text, environ=None):
    (folder / "worker.toml").write_text(text, encoding="utf-8")
    (folder / "counts.csv").write_text("n\n1\n", encoding="utf-8")
    words = [
        str(folder / word) if word == "counts.csv" else word for word in COMMANDS.get(command, (command,))
    ]
    result = CliRunner(env=environ).invoke(
        cli.cli, [words[0], "--config", str(folder / "worker.toml"), *words[1:]]
    )
    assert "Traceback" not in result.output
    return result


def test_many_places_of_secrets_are_tested():
    assert len(REFUSED) + len(OF_A_STREAM) + len(VARIABLES) + len(TAKEN) > 150


TEXTS = {place: text + STREAM for place, text in REFUSED.items()} | OF_A_STREAM


@pytest.mark.parametrize("place", TEXTS)
def test_a_refused_configuration_reveals_no_secret(place):
    with pytest.raises(ConfigError) as caught:
        parse(TEXTS[place])
    assert_unsaid(str(caught.value))
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("name", VARIABLES)
def test_a_refused_variable_reveals_no_secret(name):
    with pytest.raises(ConfigError) as caught:
        parse(STREAM, {f"LDP_WORKER_{name}": VARIABLES[name]})
    assert_unsaid(str(caught.value))
    assert f"LDP_WORKER_{name}" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS, "run"])
def test_no_command_reveals_the_secret_of_a_refused_configuration(tmp_path, command):
    for text in [*REFUSED.values()][::12]:  # a command prints the error that `parse` raises
        result = said_by(tmp_path, command, text + STREAM)
        assert result.exit_code == 2
        assert_unsaid(result.output)
    for name, value in VARIABLES.items():
        result = said_by(tmp_path, command, STREAM, {f"LDP_WORKER_{name}": value})
        assert result.exit_code == 2
        assert_unsaid(result.output)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("command", "place"),
    [(command, place) for command in COMMANDS for place in TAKEN if "check" in command or "url" not in place],
)
def test_no_command_reveals_a_secret_in_use(tmp_path, monkeypatch, command, place):
    monkeypatch.setattr(brokers, "_NOTICE_SECONDS", 0.05)
    monkeypatch.setattr(brokers, "TIMEOUT_SECONDS", 0.3)
    result = said_by(tmp_path, command, TAKEN[place] + STREAM)
    gc.collect()  # sockets that were refused
    assert result.exit_code == 1
    assert NOWHERE in result.output
    assert_unsaid(result.output)
    assert_unsaid(repr(parse(TAKEN[place] + STREAM)))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_redis_that_refuses_is_named_without_the_password(tmp_path, monkeypatch):
    monkeypatch.setattr(brokers, "TIMEOUT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse():
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"-WRONGPASS invalid username-password pair or user is disabled.\r\n" * 3)
                connection.recv(4096)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        text = f'{LOGIN}[redis]\nurl = "redis://me:{SECRET}@{address}"{STREAM}'
        result = said_by(tmp_path, "check", text)
        thread.join(60)
    gc.collect()
    said = " ".join(result.output.split())
    assert f"rejected by redis://{address}: AuthenticationError: " in said
    assert "-> correct redis.password, or the user in redis.url" in said
    assert_unsaid(said)


# --- the log ------------------------------------------------------------------------------------------------


FAILING = """
import redis
from worker.service import stream as service
def fail(settings, *_):
    password = settings["sasl_plain_password"]
    raise RuntimeError("made to fail")
service.KafkaLog.connect = fail
service.reaching.reach = lambda table, _: redis.Redis.from_url(table.url)
from worker.cli import main
main()
"""


def log_of_run(folder, terminal):
    """Log of `run`, as JSON or as on a terminal, up to the traceback of an error that had access to the
    secrets."""
    (folder / "worker.toml").write_text(
        f'http.port = 0\n{LOGIN}[redis]\nurl = "redis://me:{SECRET}@{NOWHERE}"{STREAM}', encoding="utf-8"
    )
    ours, theirs = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-c", FAILING, "run", "--config", folder / "worker.toml"]
    environ = os.environ | {"COLUMNS": "1000"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 120
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not (more := os.read(ours, 65536)):
                break
            shown += more
            if shown.count(b"made to fail") >= 2 and process.poll() is None:
                process.send_signal(signal.SIGTERM)
    process.kill()
    process.wait()
    os.close(ours)
    return shown.decode()


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_traceback_in_the_log_has_no_locals(tmp_path, terminal):
    said = log_of_run(tmp_path, terminal)
    assert "Traceback (most recent call last)" in said
    assert "made to fail" in said
    assert ('{"' in said) == (not terminal)
    assert_unsaid(said)


# --- what may be shown of a URL -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost", "redis://localhost"),
        ("rediss://me:x@cache.example:6380/3", "rediss://cache.example:6380"),
        ("redis://:x@[::1]:6379/0", "redis://[::1]:6379"),
        ("redis://host/0?password=x", "redis://host"),
        ("unix://me:x@/run/redis.sock", "unix://"),
        ("redis://me:12/3@host", "a URL that cannot be shown"),
        ("host:6379", "a URL that cannot be shown"),
        ("", "a URL that cannot be shown"),
    ],
)
def test_only_scheme_host_and_port_of_a_url_are_shown(url, shown):
    assert redaction.redacted(url) == shown
