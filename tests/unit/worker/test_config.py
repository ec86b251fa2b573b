import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import ldp
from ldp.oracles import ORACLES
from ldp.query import SetQuery, TopQuery
from tests.support.tables import rows
from worker.config import ConfigError, load, loading, parse
from worker.config.schema import File, QueryTable, StreamTable, Table
from worker.counting.rules import RecordLimits, RequestedRule, Rule

STREAM = """
[[streams]]
name = "colours"
topic = "colour-reports"
protocol = "olh"
epsilon = "1/2"
domain_size = 10
"""
DECLARED = {
    "unit": '"device"', "reports": 1, "period": '"24h"', "noise": '"fresh"', "horizon": '"365d"'
}  # fmt: skip
PRIVACY = STREAM + "[streams.privacy]\n" + "\n".join(f"{key} = {value}" for key, value in DECLARED.items())


def fault(text, environ=None):
    with pytest.raises(ConfigError) as caught:
        parse(text, environ=environ)
    return str(caught.value)


def test_the_limit_of_reports_per_record():
    def configured(more):
        return parse(STREAM + more).streams[0].configured

    assert configured("") == RequestedRule(None, RecordLimits(10_000, True, 16 << 20))
    assert configured("most_reports = 1\nrevision = 4") == RequestedRule(4, RecordLimits(1, True, 16 << 20))
    for key in ("most_reports", "revision"):
        for wrong in ("0", "-1", str(1 << 31), "1.5", "true"):
            with pytest.raises(ConfigError, match=rf"^streams\[colours\]\.{key}: {wrong} given; a"):
                configured(f"{key} = {wrong}")


def test_a_declaration_is_part_of_the_document():
    declared = parse(PRIVACY).streams[0].stream
    assert declared.document() == parse(STREAM).streams[0].stream.document() | {
        "privacy": {"unit": "device", "reports": 1, "period": "24h", "noise": "fresh", "horizon": "365d"}
    }


@pytest.mark.parametrize(("configured", "recorded"), [(0, 0), (1, 0), (2, 2), (20, 20)])
def test_the_smallest_increment_is_a_recorded_limit(configured, recorded):
    (served,) = parse(f"[snapshots]\nfewest_new = {configured}\n{STREAM}").streams
    assert served.configured.limits.fewest_new == recorded
    assert ("fewest_new" in Rule(0, 1, served.configured.limits).as_json()) == (recorded > 0)


def test_a_minimal_configuration_has_defaults():
    config = parse(STREAM)
    assert config.group == "ldp-worker"
    assert config.commit_every_seconds == 1.0
    assert config.snapshots.topic == "ldp-snapshots"
    assert config.consumer_group("colours") == "ldp-worker-colours"
    assert config.streams[0].stream.oracle.epsilon == pytest.approx(0.5)
    assert config.kafka.client() == {
        "bootstrap_servers": ["localhost:9092"],
        "security_protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize(
    ("seconds", "heartbeat"), [("10", 1000), ("3600.0", None), ("6", 1000), ("2.5", 833), ("1", 333)]
)
def test_a_member_sends_at_least_three_heartbeats_per_session(seconds, heartbeat):
    text = f"[kafka]\nsession_timeout_seconds = {seconds}\n" + STREAM
    if heartbeat is None:
        assert fault(text) == "kafka.session_timeout_seconds: a number given; allowed are 1 to 1800 seconds"
        return
    settings = parse(text).kafka.membership()
    assert settings == {"session_timeout_ms": 1000 * float(seconds), "heartbeat_interval_ms": heartbeat}


def test_each_process_has_a_separate_member_name():
    assert parse(STREAM).kafka.numbered(3) == parse(STREAM).kafka
    named = parse(STREAM, {"LDP_WORKER_KAFKA__MEMBER": "7"}).kafka
    assert named.membership()["group_instance_id"] == "7"
    assert [named.numbered(n).membership()["group_instance_id"] for n in range(2)] == ["7-0", "7-1"]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a\\n", 201 * "a"])
def test_member_names_are_valid_in_kafka(name):
    said = fault(f'[kafka]\nmember = "{name}"\n' + STREAM)
    assert said == ("kafka.member: a text given; allowed are 1 to 200 of A-Z a-z 0-9 . _ - except . and ..")


GLOBAL_FAULTS = r"""
http = [{port = 0}] | http: a list given; a table is needed, under [http]
x = 1 | x: no such key; allowed are group, commit_every_seconds, log_level, kafka, redis, http,
bootstrap_servers = [] | no such key; did you mean kafka.bootstrap_servers, below its heading? allowed are
ssl_cafile = 'of whom?' | ssl_cafile: no such key; allowed are group,
http.prot = 1 | http.prot: no such key; did you mean port? allowed are host, port, page, names
http.str = 1 | http.str: no such key; allowed are host, port, page, names
http.port = 70000 | http.port: 70000 given; allowed are 0 to 65535
http.port = 'web' | http.port: a text given; a whole number is needed
gateway.port = 0 | gateway.port: 0 given; allowed are 1 to 65535
commit_every_seconds = nan | commit_every_seconds: nan given; allowed are 0.05 to
commit_every_seconds = '1 s' | commit_every_seconds: a text given; a number is needed
group = "a\n" | group: a text given; allowed are 1 to 200 of A-Z
group = 2020-01-02 | group: a time given; a string is needed, in quotes
snapshots.every_seconds = 0 | snapshots.every_seconds: 0 given; allowed are 0.05 to 3600 seconds
snapshots.compression = 'br' | snapshots.compression: a text given; allowed is
snapshots.topic = 'a b' | snapshots.topic: a text given; allowed are 1 to 249 of A-Z a-z 0-9 . _ -
snapshots.topic = 'colour-reports' | snapshots.topic: 'colour-reports' given; it must be
dead_letters.topic = 'ldp-snapshots' | 'ldp-snapshots' given; it must be a topic without
shuffle.deduplicate_for = '39m' | shuffle.deduplicate_for: a text given; allowed are 40m to 366d
gateway = {ssl_certfile = 'no.pem', ssl_keyfile = 'no.pem'} | gateway.ssl_certfile: there is no such file; a path is
kafka.security_protocol = 'TLS' | a text given; allowed is 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT' or 'SASL_SSL'
kafka.security_protocol = 'SASL_SSL' | needs sasl_mechanism, sasl_username and sasl_password
kafka.sasl_username = 'me' | kafka.sasl_username: sasl_username needs security_protocol SASL_SSL or SASL_PLAINTEXT
kafka.ssl_cafile = 7 | kafka.ssl_cafile: a number given; a path is needed, in quotes
kafka.ssl_cafile = 'nofile.pem' | kafka.ssl_cafile: there is no such file; a path is needed
kafka.bootstrap_servers = [] | kafka.bootstrap_servers: an empty list given; at least one is
kafka.bootstrap_servers = ['localhost:abc'] | kafka.bootstrap_servers[0]: a text given
kafka.bootstrap_servers = ['localhost:65536'] | a text given; allowed is host:port
kafka.bootstrap_servers = [':9092'] | a text given; allowed is host:port, such as
redis.url = 'localhost' | redis.url: a URL that cannot be shown given; allowed is redis://host
redis.url = 'redis://localhost:99999/0' | redis.url: a URL that cannot be shown given; allowed is
redis.url = 'redis://localhost/x' | allowed is redis://host:port/number or
redis.url = 'redis://localhost/0?foo=bar' | redis.url: redis://localhost given; allowed is
redis.url = 'redis://one,two' | redis.url: a URL that cannot be shown given; allowed is
redis.url = 'redis+sentinel://one,two' | redis.url: redis+sentinel://one,two given; allowed is
redis.url = 'redis+cluster://one/1' | redis.url: redis+cluster://one given; allowed is
redis.ssl_cafile = 'ca.pem' | redis.ssl_cafile: ssl_cafile needs a url of rediss://, rediss+sentinel:// or
redis.sentinel_password = 'geheim' | sentinel_password needs a url of redis+sentinel:// or
"""


@pytest.mark.parametrize(("text", "expected"), rows(GLOBAL_FAULTS))
def test_a_fault_names_the_key_the_value_and_the_allowed_values(text, expected):
    assert expected in fault(text + STREAM)


STREAM_FAULTS = r"""
size = 10 | streams[colours].size: no such key; allowed are name, topic,
intake = 'colour-reports' | streams[colours].intake: 'colour-reports' given; it must be
shuffle_batch_size = 0 | streams[colours].shuffle_batch_size: 0 given; allowed are 1 to 2147483647
name = 'a b' | streams[a b].name: 'a b' given
epsilon = 0.5 | streams[colours].epsilon: 0.5 given; write it in quotes, "0.5": ε is
epsilon = true | streams[colours].epsilon: true given; a string or a whole number is
epsilon = '0' | streams[colours].epsilon: epsilon is 0; allowed
protocol = 'rappor' | streams[colours].protocol: protocol is 'rappor'; allowed
domain_size = 0 | streams[colours].domain_size: 0 given; a whole number of
labels = ["a", "b"] | streams[colours].labels: there are 2 labels for 10 values
hash = 'md5' | streams[colours].hash: hash is 'md5'; allowed are mul32, xxh32
g = 1 | streams[colours].g: g is 1; allowed is 2 to 65536
k = 3 | streams[colours].k: 3 given; olh takes g and hash
protocol = 'grr' ; g = 3 | streams[colours].g: 3 given; grr takes no parameters of its own
protocol = 'subset' ; prime = 3 | streams[colours].prime: 3 given; subset takes k
protocol = 'pgr' ; prime = 3 | streams[colours].prime: only one of prime and dimension given; pass both or neither
privacy = 7 | streams[colours].privacy: 7 given; a table is needed
queries = {name = 'q', values = [1]} | streams[colours].queries: a table given; write [[streams.queries]], in double
queries = [{name = 'q', values = [10]}] | queries[q].values: 10 given; allowed is a label or
queries = [{name = 'q', values = ['red']}] | queries[q].values: 'red' given; allowed is
queries = [{name = 'q'}] | queries[q]: give one of values, where and top, and only one
queries = [{name = 'q', values = [1], top = 3}] | queries[q].values: give one of values, where and top, and only
queries = [{name = 'q', top = 11}] | queries[q].top: top is 11; allowed is 1 to 10
queries = [{name = 'q', where = ['a*']}] | queries[q].where: stream colours has no labels
queries = [{name = 'q', where = 'a*'}] | queries[q].where: 'a*' given; a list is
queries = [{name = 'q', where = []}] | queries[q].where: an empty list given; at least one is
queries = [{name = 'q', top = 1}, {name = 'q', top = 1}] | queries[q].name: 'q' given; it must be a name without other
"""


def stream_with(lines):
    """The stream with changed or additional keys."""
    changed = [line.split()[0] for line in lines.splitlines()]
    return "\n".join([line for line in STREAM.splitlines() if line.split(" ")[0] not in changed] + [lines])


@pytest.mark.parametrize(("lines", "expected"), rows(STREAM_FAULTS))
def test_a_fault_of_a_stream_names_the_key_the_value_and_the_allowed_values(lines, expected):
    assert expected in fault(stream_with(lines))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "streams: nothing given; write [[streams]], in double brackets, above each stream"),
        ("streams = []", "streams: an empty list given; write [[streams]]"),
        (STREAM.replace("[[streams]]", "[streams]"), "streams: a table given; write [[streams]], in double"),
        (STREAM.replace("name", "# name"), "streams[0].name: nothing given; it is needed"),
        (STREAM.replace("domain_size = 10", ""), "streams[colours].domain_size: nothing given"),
        (STREAM + STREAM, "streams[colours].name: 'colours' given; it must be a name without other uses"),
        (
            stream_with(
                "domain_size = 2\nlabels = ['red', 'blue']\nqueries = [{name = 'q', where = ['r*', 'g*']}]"
            ),
            "queries[q].where: no label satisfies 'g*'",
        ),
        (
            PRIVACY.replace("24h", "1w"),
            "[colours].privacy: privacy.period is '1w'; allowed is a whole number",
        ),
        (PRIVACY.replace('"24h"', "24"), "privacy: privacy.period is 24; it must be a string"),
        (PRIVACY.replace("24h", "redis://:secret@host"), "privacy: privacy.period is a text; allowed"),
        (
            PRIVACY.replace("reports", "report"),
            "privacy: privacy has the keys ['horizon', 'noise', 'period',",
        ),
        ("group = ", "not valid TOML"),
    ],
)
def test_missing_repeated_and_malformed_tables_are_named(text, expected):
    assert expected in fault(text)


@pytest.mark.parametrize("protocol", ORACLES)
def test_every_protocol_can_be_served(protocol):
    oracle = parse(STREAM.replace("olh", protocol)).streams[0].stream.oracle
    assert oracle == ORACLES[protocol]("1/2", 10)
    assert set(ORACLES[protocol].own_parameters) <= set(StreamTable.model_fields)


@pytest.mark.parametrize(
    ("protocol", "own"),
    [
        ("olh", {"g": 2, "hash": "xxh32"}),
        ("subset", {"k": 4}),
        ("pgr", {"prime": 5, "dimension": 3}),
    ],
)
def test_parameters_of_a_protocol_are_passed_unchanged(protocol, own):
    lines = "\n".join(f"{key} = {value!r}" for key, value in own.items())
    oracle = parse(STREAM.replace("olh", protocol) + lines).streams[0].stream.oracle
    assert own.items() <= oracle.parameters().items()


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://me:geheim@cache:6380/3",
        "rediss://[::1]:6379/0",
        "redis://:p%40ss@10.0.0.1/",
        "unix:///run/redis.sock",
        "redis+sentinel://one/mymaster",
        "rediss+sentinel://me:geheim@one:26379,[::1]:26380/my.master-1/3",
        "redis+cluster://one:7000,two,10.0.0.3:7002",
        "rediss+cluster://me@one/0",
    ],
)
def test_valid_addresses_are_accepted(url):
    text = f"[redis]\nurl = '{url}'\n[kafka]\nbootstrap_servers = ['[::1]:9092', 'kafka-1.example:65535']"
    assert parse(text + STREAM).redis.url == url


def test_all_faults_are_reported_at_once():
    assert len(fault("group = 'a b'\n[http]\nport = -1" + STREAM).splitlines()) == 2


def test_queries_are_sets_patterns_and_tops():
    stream = STREAM.replace("domain_size = 10", "labels = ['light red', 'dark red', 'blue']")
    queries = """
    [[streams.queries]]
    name = "listed"
    values = ["blue", 0]
    [[streams.queries]]
    name = "most"
    top = 2
    [[streams.queries]]
    name = "reds"
    where = ["*red", "light*"]
    """
    asked = parse(stream + queries).streams[0].queries
    assert asked == (SetQuery("listed", (2, 0)), SetQuery("reds", (0, 1)), TopQuery("most", 2))


def test_a_thousand_faults_are_summarised():
    lines = fault(STREAM + f"labels = {list(range(1000))}").splitlines()
    assert lines[0] == "streams[colours].labels[0]: 0 given; a string is needed, in quotes"
    assert lines[20:] == ["... and 980 more faults"]


ANYTHING = """
true 1 -1 0 0.5 nan inf 1e30 99999999999999999999999 2020-01-01 12:00:00
"" "x" "a\\tb" [] [1] [0.5] ["x"] [""] [true] [[1]]
{} {a=1} {str=1} [{a=1}] [{name="q"}] [{name="",values=[]}]
"""
"""Values of every type of TOML."""


def test_faults_are_reported_without_pydantic_messages():
    """Every key of every table, with values of every type: one line per fault, beginning with the key."""
    stream = dict(line.split(" = ") for line in STREAM.splitlines() if " = " in line)
    texts = [f"{k} = {v}\n{STREAM}" for k in File.model_fields if k != "streams" for v in ANYTHING.split()]
    for name, field in File.model_fields.items():
        if isinstance(field.default, Table):
            keys = type(field.default).model_fields
            texts += [f"[{name}]\n{key} = {value}\n{STREAM}" for key in keys for value in ANYTHING.split()]
    for value in ANYTHING.split():
        texts.append(f"streams = {value}")
        for key in StreamTable.model_fields:
            lines = "\n".join(f"{k} = {v}" for k, v in (stream | {key: value}).items())
            texts.append(f"[[streams]]\n{lines}")
        for key in QueryTable.model_fields:
            query = {"name": '"q"', "values": "[1]"} | {key: value}
            lines = "\n".join(f"{k} = {v}" for k, v in query.items())
            texts.append(f"{STREAM}[[streams.queries]]\n{lines}")
    said = []
    for text in texts:
        try:
            parse(text)
        except ConfigError as error:
            said += str(error).splitlines()
    assert len(said) > 500
    theirs = re.compile(
        "[Ii]nput|[Vv]alid|should|Field|String|List|[Dd]ictionary|Value|Extra|None|True|False|<[a-z]"
    )
    assert [line for line in said if theirs.search(line)] == []
    assert [line for line in said if not re.match(r"[a-z_.]+(\[[\w .-]+\][a-z_.]*)*: ", line)] == []
    assert not any(re.match(r"\S+\.(str|int): (?!no such key)", line) for line in said)


def test_environment_variables_override_the_file():
    config = parse(
        STREAM,
        environ={
            "LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS": "a:1, b:2",
            "LDP_WORKER_HTTP__PORT": "0",
            "LDP_WORKER_GROUP": "g",
            "LDP_WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "LDP_WORKER_KAFKA__SASL_MECHANISM": "PLAIN",
            "LDP_WORKER_KAFKA__SASL_USERNAME": "me",
            "LDP_WORKER_KAFKA__SASL_PASSWORD": "geheim",
            "LDP_WORKER_REDIS__PASSWORD": "12345",
            "LDP_WORKER_CONFIG": "worker.toml",
            "PATH": "/bin",
        },
    )
    assert config.kafka.bootstrap_servers == ["a:1", "b:2"]
    assert (config.http.port, config.group) == (0, "g")
    assert config.kafka.client()["sasl_plain_password"] == "geheim"
    assert "geheim" not in repr(config)
    assert config.redis.password.get_secret_value() == "12345"


VARIABLE_FAULTS = f"""
HTTP__PROT | 1 | http.prot | no such key; did you mean port? allowed are host, port, page, names
HTTP__PORT | web | http.port | a text given; a whole number is needed
HTTP__PORT | {"[" * 100_000} | http.port | a text given; a whole number is needed
HTTP__PORT | {"9" * 5000} | http.port | a text given; a whole number is needed
KAFKA__SSL_CAFILE | no.pem | kafka.ssl_cafile | there is no such file; a path is needed, from {Path().absolute()} on
SNAPSHOTS__TOPIC | colour-reports | snapshots.topic | 'colour-reports' given; it must be a topic without other uses
REDIS | 7 | redis | a number given; a table is needed, under [redis]
GROUP__X | 1 | group | a table given; a string is needed, in quotes
"""


@pytest.mark.parametrize(
    ("variable", "text", "key", "expected"), rows(VARIABLE_FAULTS), ids=range(len(rows(VARIABLE_FAULTS)))
)
def test_a_fault_of_the_environment_names_the_variable(variable, text, key, expected):
    variable = f"LDP_WORKER_{variable}"
    assert fault(STREAM, {variable: text}) == f"{key} ({variable}): {expected}"


def test_a_fault_of_a_list_in_a_variable_names_the_element_and_streams_have_no_variables():
    servers, stream = "LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS", "LDP_WORKER_STREAMS__0__NAME"
    assert fault(STREAM, {servers: "a:1,b"}) == (
        f"kafka.bootstrap_servers[1] ({servers}): a text given; allowed is host:port, such as localhost:9092,"
        " without a scheme, user or password"
    )
    assert fault(STREAM, {stream: "1"}) == f"{stream}: streams are configured in the file only"


PASSWORD_FILE = "LDP_WORKER_REDIS__PASSWORD_FILE"


def test_secrets_are_read_from_files(tmp_path):
    """Secrets as containers get them: a file, with an editor's trailing newline."""
    for name, text in (("redis", "12345\n"), ("kafka", " p=#ss \r\n")):
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "worker.toml").write_text('redis.password = "of the file"\n' + STREAM)
    login = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "PLAIN", "SASL_USERNAME": "me"}
    environ = {f"LDP_WORKER_KAFKA__{key}": value for key, value in login.items()}
    environ["LDP_WORKER_KAFKA__SASL_PASSWORD_FILE"] = "kafka"  # from the configuration's folder on
    config = load(tmp_path / "worker.toml", environ | {PASSWORD_FILE: str(tmp_path / "redis")})
    assert config.redis.password.get_secret_value() == "12345"
    assert config.kafka.client()["sasl_plain_password"] == " p=#ss "


def test_an_invalid_secret_file_is_a_fault_without_its_contents(tmp_path):
    for name, content in (("empty", b"\n"), ("no-text", b"geheim\xff")):
        (tmp_path / name).write_bytes(content)
    for given, why in (
        ("empty", "is empty"),
        ("no-text", "cannot be read (not a text)"),
        (".", "cannot be read (Is a directory)"),
        ("geheim", "cannot be read (No such file or directory)"),  # the secret itself
        ("geheim" * 99, "cannot be read (File name too long)"),
    ):
        said = fault(STREAM, {PASSWORD_FILE: str(tmp_path / given)})
        assert said == f"{PASSWORD_FILE}: the file that it names {why}"
    both = {PASSWORD_FILE: "x", "LDP_WORKER_REDIS__PASSWORD": "geheim"}
    assert fault(STREAM, both) == f"{PASSWORD_FILE}: give it or LDP_WORKER_REDIS__PASSWORD, not both"
    (tmp_path / "user").write_text("geheim")
    said = fault(STREAM, {"LDP_WORKER_KAFKA__SASL_USERNAME_FILE": str(tmp_path / "user")})
    assert said.startswith("kafka.sasl_username_file (LDP_WORKER_KAFKA__SASL_USERNAME_FILE): no such key;")
    twice = {"LDP_WORKER_REDIS__URL": "redis://:one@localhost", PASSWORD_FILE: str(tmp_path / "user")}
    assert fault(STREAM, twice) == (
        f"redis.password ({PASSWORD_FILE}): a password in url and in password given; give only one"
    )


def of_a_service(name):
    """Environment that the kubelet sets in each pod for a Service with a named TCP port and a UDP port."""
    return {
        f"{name}_SERVICE_HOST": "10.96.7.1",
        f"{name}_SERVICE_PORT": "9464",
        f"{name}_SERVICE_PORT_METRICS": "9464",
        f"{name}_SERVICE_PORT_HTTP_2": "80",
        f"{name}_PORT": "tcp://10.96.7.1:9464",
        f"{name}_PORT_9464_TCP": "tcp://10.96.7.1:9464",
        f"{name}_PORT_9464_TCP_PROTO": "tcp",
        f"{name}_PORT_9464_TCP_PORT": "9464",
        f"{name}_PORT_9464_TCP_ADDR": "10.96.7.1",
        f"{name}_PORT_53_UDP": "udp://10.96.7.1:53",
    }


@pytest.mark.parametrize(
    "service", ["", "_METRICS", "_REDIS", "_KAFKA", "_HTTP", "_KAFKA_0", "_REDIS_SERVICE", "_STREAMS", "_2"]
)
def test_service_variables_of_kubernetes_are_ignored(service):
    environ = of_a_service(f"LDP_WORKER{service}")
    assert parse(STREAM, environ) == parse(STREAM)
    config = parse(STREAM, environ | {"LDP_WORKER_HTTP__PORT": "1", "LDP_WORKER_GROUP": "g"})
    assert (config.http.port, config.group) == (1, "g")


OTHER_VARIABLES = """
REDIS__SERVICE_HOST | 10.96.7.1 | redis.service_host
KAFKA__PORT | tcp://10.96.7.1:9092 | kafka.port
HTTP__PORT_9464_TCP | tcp://10.96.7.1:1 | http.<a key that cannot be shown>
HTTP_PORT | 9464 | http_port
HTTP_HOST | 10.96.7.1 | http_host
PORT | 9464 | port
SERVICE_HOSTS | 10.96.7.1 | service_hosts
PORT_HTTP_TCP | tcp://10.96.7.1:1 | port_http_tcp
REDIS_URL | redis://10.96.7.1 | redis_url
"""
"""Variables that Kubernetes does not set for a Service, and mistakes such as one _ for two."""


@pytest.mark.parametrize(("variable", "text", "key"), rows(OTHER_VARIABLES))
def test_every_other_variable_is_a_fault(variable, text, key):
    variable = f"LDP_WORKER_{variable}"
    assert f"{key}: no such key" in fault(STREAM, {variable: text}).replace(f" ({variable})", "")


def test_labels_and_queries_are_read_from_a_file(tmp_path):
    (tmp_path / "labels.txt").write_text("rot\ngrün\nblau\n", encoding="utf-8")
    path = tmp_path / "worker.toml"
    table = STREAM.replace("domain_size = 10", 'labels = "labels.txt"')
    path.write_text(table + "[[streams.queries]]\nname = 'warm'\nvalues = ['rot', 2]", encoding="utf-8")
    served = load(path, {}).streams[0]
    assert served.stream.labels == ("rot", "grün", "blau")
    assert served.stream.oracle.domain_size == 3
    assert served.queries == (SetQuery("warm", (0, 2)),)


def test_a_missing_file_is_named():
    with pytest.raises(
        ConfigError, match=r"^/nonexistent/worker\.toml: there is no such file; name one with --config"
    ):
        load(Path("/nonexistent/worker.toml"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"a = " + b"[" * 100_000, "worker.toml: not valid TOML: nested too deeply", id="deep"),
        pytest.param(
            b"a = " + b"{a=" * 9000 + b"1" + b"}" * 9000,
            "worker.toml: not valid TOML: nested too deeply",
            id="deep tables",
        ),
        pytest.param(
            b"a = " + b"9" * 5000, "worker.toml: not valid TOML: a number has too many digits", id="huge"
        ),
        (b"group = ", "worker.toml:1: not valid TOML: "),
        (b"[kafka]\ngroup = [1\n2]\n", "worker.toml:3: not valid TOML: "),
        (b"group = '\xff'", "worker.toml: cannot be read ('utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_file_that_is_not_toml_is_named(tmp_path, content, expected):
    path = tmp_path / "worker.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert str(caught.value).startswith(f"{tmp_path}/{expected}")


def test_a_stream_is_selected_by_name():
    other = STREAM.replace("colours", "shapes").replace("colour-reports", "shape-reports")
    config = parse(STREAM + other)
    assert config.served("shapes").topic == "shape-reports"
    with pytest.raises(ConfigError, match="needed with several streams"):
        config.served(None)
    with pytest.raises(ConfigError, match="'x' given; the configuration has colours, shapes"):
        config.served("x")


def test_the_configuration_is_read_without_a_client_library():
    clients = "{'kafka', 'redis', 'rich', 'prometheus_client'}"
    code = f"import sys; from worker.config import load; print(sorted(sys.modules.keys() & {clients}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


def given(protocol, **keys):
    """A stream whose probabilities are given."""
    rest = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return STREAM.replace('"olh"', f'"{protocol}"').replace('epsilon = "1/2"\ndomain_size = 10\n', rest)


def test_explicit_channels_can_be_served():
    for text, document in (
        (given("response", p='"0.75"', domain_size=5), {"p": "3/4", "domain_size": 5}),
        (given("unary", p='"3/4"', q='"0.1"', domain_size=5), {"p": "3/4", "q": "1/10", "domain_size": 5}),
        (
            given("unary", f='"1/2"', p='"3/4"', q='"1/2"', domain_size=5),
            {"f": "1/2", "p": "3/4", "q": "1/2", "domain_size": 5},
        ),
        (
            given("unary", p="1", q='"1/2"', epsilon='"infinite"', domain_size=5),
            {"p": "1/1", "q": "1/2", "domain_size": 5, "epsilon": "infinite"},
        ),
    ):
        made = parse(text).streams[0].stream.document()
        assert made.pop("protocol") in text
        assert made == document


CHANNEL_FAULTS = r"""
protocol = "olh" | streams[colours].epsilon: no value given; olh needs one
protocol = "olh" ; epsilon = "1" ; p = "3/4" | streams[colours].p: '3/4' given; olh takes g and hash
protocol = "response" | streams[colours].protocol: response needs p
protocol = "response" ; p = 0.75 | write it in quotes, "0.75": a probability is exact
protocol = "response" ; p = "3/2" | p is 3/2; allowed is 0 to 1
protocol = "response" ; q = "1/2" | streams[colours].q: '1/2' given; response takes p
protocol = "unary" ; p = "3/4" | streams[colours].p: unary needs p and q, or f and p and q
protocol = "unary" ; p = "3/4" ; q = "1/4" ; epsilon = "1" | for unary omit it
protocol = "unary" ; p = 1 ; q = "1/4" | these probabilities make epsilon infinite
"""


@pytest.mark.parametrize(("lines", "expected"), rows(CHANNEL_FAULTS))
def test_an_invalid_explicit_channel_is_refused(lines, expected):
    assert expected in fault(stream_with(lines).replace('epsilon = "1/2"', ""))


def test_uploads_need_one_document_without_segments():
    one = ldp.Stream("colours", ldp.GRR("1", 3))
    for documents in ((one, replace(one, oracle=ldp.GRR("2", 3))), (replace(one, segment="country"),)):
        served = SimpleNamespace(fleet=ldp.Fleet(documents), stream=documents[0], intake="uploads")
        with pytest.raises(
            ConfigError, match=r"streams\[0\].intake: uploads given; allowed for a stream with one"
        ):
            loading._refuse_fleet_uploads(served, "streams[0]")
        served.intake = None
        loading._refuse_fleet_uploads(served, "streams[0]")
    loading._refuse_fleet_uploads(SimpleNamespace(fleet=ldp.Fleet((one,)), stream=one, intake="uploads"), "s")
