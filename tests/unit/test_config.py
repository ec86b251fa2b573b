from pathlib import Path

import pytest

from ldp.oracles import ORACLES
from worker.config import ConfigError, StreamTable, load, parse

STREAM = """
[[streams]]
name = "colours"
topic = "colour-reports"
protocol = "olh"
epsilon = "1/2"
domain_size = 10
"""
GRR, SUBSET, PGR = (STREAM.replace("olh", name) for name in ("grr", "subset", "pgr"))


def fault(text, environ=None):
    with pytest.raises(ConfigError) as caught:
        parse(text, environ=environ)
    return str(caught.value)


def test_defaults_and_stream():
    config = parse(STREAM)
    assert config.group == "ldp-worker"
    assert config.commit_every_seconds == 1.0
    assert config.snapshots.topic == "ldp-snapshots"
    assert config.consumer_group(config.streams[0].stream) == "ldp-worker-colours"
    assert config.streams[0].stream.oracle.epsilon == pytest.approx(0.5)
    assert config.kafka.client() == {
        "bootstrap_servers": ["localhost:9092"],
        "security_protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "streams: nothing given; Field required"),
        ("streams = []", "streams: [] given; List should have at least 1 item"),
        ("x = 1" + STREAM, "x: no such key"),
        (
            "[http]\nport = 70000" + STREAM,
            "http.port: 70000 given; Input should be less than or equal to 65535",
        ),
        ("[http]\nport = 'web'" + STREAM, "http.port: 'web' given; Input should be a valid integer"),
        (
            "[snapshots]\nevery_seconds = 0" + STREAM,
            "snapshots.every_seconds: 0 given; Input should be greater",
        ),
        ("[redis]\nurl = 'localhost'" + STREAM, "redis.url: 'localhost' given; String should match"),
        (
            "[kafka]\nbootstrap_servers = []" + STREAM,
            "kafka.bootstrap_servers: [] given; Value should have at least 1 item",
        ),
        (
            "[snapshots]\ntopic = 'colour-reports'" + STREAM,
            "snapshots.topic: 'colour-reports' given; it must be",
        ),
        (
            "[dead_letters]\ntopic = 'ldp-snapshots'" + STREAM,
            "'ldp-snapshots' given; it must be a topic that",
        ),
        (STREAM.replace('"1/2"', "0.5"), "streams[0].epsilon.str: 0.5 given"),
        (STREAM.replace('"1/2"', '"0"'), "streams[0]: "),
        (STREAM.replace('"olh"', '"rappor"'), "streams[0]: "),
        (STREAM.replace("= 10", "= 0"), "streams[0].domain_size: nothing given"),
        (STREAM.replace("domain_size = 10", ""), "streams[0].domain_size: nothing given"),
        (STREAM + 'labels = ["a", "b"]', "streams[0]: stream colours: there are 2 labels for 10 values"),
        (STREAM + "hash = 'md5'", "streams[0]: hash is 'md5'; there are mix32, xxh32"),
        (STREAM + "g = 1", "streams[0]: g is 1; allowed is 2 to 65536"),
        (STREAM + "g = true", "streams[0].g: True given; Input should be a valid integer"),
        (STREAM + "k = 3", "streams[0].k: 3 given; olh takes g and hash"),
        (GRR + "g = 3", "streams[0].g: 3 given; grr takes no parameters of its own"),
        (SUBSET + "k = 10", "streams[0]: k is 10; allowed is 1 to 9"),
        (SUBSET + "k = 2.0", "streams[0].k: 2.0 given; Input should be a valid integer"),
        (SUBSET + "prime = 3", "streams[0].prime: 3 given; subset takes k"),
        (PGR + "prime = 3", "streams[0]: prime and dimension are given together or not at all"),
        (PGR + "prime = 4\ndimension = 3", "streams[0]: prime is 4, which is not a prime number"),
        (PGR + "prime = 3\ndimension = 2", "streams[0]: prime 3 and dimension 2 make 4 points; allowed is"),
        (PGR + "prime = '3'\ndimension = 3", "streams[0].prime: '3' given; Input should be a valid integer"),
        (STREAM.replace("colours", "a b"), "streams[0].name: 'a b' given"),
        (STREAM + STREAM, "streams: the name 'colours' is given twice"),
        (
            STREAM + "[[streams.queries]]\nname = 'q'\nvalues = [10]",
            "query 'q': 10 given; allowed is a label or",
        ),
        (STREAM + "[[streams.queries]]\nname = 'q'\nvalues = ['red']", "query 'q': 'red' given; allowed is"),
        ("group = ", "not valid TOML"),
    ],
)
def test_a_fault_names_the_key_the_value_and_what_is_allowed(text, expected):
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
def test_a_protocols_own_parameters_are_taken_as_given(protocol, own):
    lines = "\n".join(f"{key} = {value!r}" for key, value in own.items())
    oracle = parse(STREAM.replace("olh", protocol) + lines).streams[0].stream.oracle
    assert own.items() <= oracle.parameters().items()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[kafka]\nsecurity_protocol = 'SASL_SSL'", "needs sasl_mechanism, sasl_username and sasl_password"),
        ("[kafka]\nsasl_username = 'me'", "sasl_* needs security_protocol SASL_SSL or SASL_PLAINTEXT"),
        ("[kafka]\nssl_cafile = 'nofile.pem'", "kafka.ssl_cafile: 'nofile.pem' given; there is no such file"),
        (
            "[kafka]\nbootstrap_servers = ['localhost:abc']",
            "kafka.bootstrap_servers[0]: 'localhost:abc' given",
        ),
        ("[redis]\nurl = 'redis://localhost:99999/0'", "redis.url: 'redis://localhost:99999/0' given; Port"),
        ("[redis]\nurl = 'redis://localhost/x'", "allowed is scheme://host:port/number, without options"),
        (
            "[redis]\nurl = 'redis://localhost/0?foo=bar'",
            "allowed is scheme://host:port/number, without options",
        ),
    ],
)
def test_what_could_only_be_noticed_later_is_said_now(text, expected):
    assert expected in fault(text + STREAM)


@pytest.mark.parametrize(
    "text",
    [
        "[redis]\npasword = 'geheim'",
        "[redis]\nurl = 'redis://:geheim@localhost/x'",
        "[redis]\nurl = 'redis:/:geheim@localhost'",
        "[kafka]\nsasl_pasword = 'geheim'",
        "[redi]\npassword = 'geheim'",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_shown(text):
    assert "geheim" not in fault(text + STREAM)


def test_all_faults_at_once():
    assert len(fault("group = 'a b'\n[http]\nport = -1" + STREAM).splitlines()) == 2


def test_a_secret_is_not_shown():
    message = fault("[kafka]\nsasl_password = 7" + STREAM)
    assert message.startswith("kafka.sasl_password: a secret given")


def test_the_environment_overrides():
    config = parse(
        STREAM,
        environ={
            "LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS": "a:1, b:2",
            "LDP_WORKER_HTTP__PORT": "0",
            "LDP_WORKER_GROUP": "g",
            "LDP_WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "LDP_WORKER_KAFKA__SASL_MECHANISM": "PLAIN",
            "LDP_WORKER_KAFKA__SASL_USERNAME": "me",
            "LDP_WORKER_KAFKA__SASL_PASSWORD": "secret",
            "LDP_WORKER_REDIS__PASSWORD": "12345",
            "LDP_WORKER_CONFIG": "worker.toml",
            "PATH": "/bin",
        },
    )
    assert config.kafka.bootstrap_servers == ["a:1", "b:2"]
    assert (config.http.port, config.group) == (0, "g")
    assert config.kafka.client()["sasl_plain_password"] == "secret"
    assert "secret" not in repr(config)
    assert config.redis.password.get_secret_value() == "12345"


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("LDP_WORKER_HTTP__PROT", "http.prot: no such key"),
        (
            "LDP_WORKER_STREAMS__0__NAME",
            "LDP_WORKER_STREAMS__0__NAME: streams are configured in the file only",
        ),
        ("LDP_WORKER_GROUP__X", "group: {'x': 1} given; Input should be a valid string"),
    ],
)
def test_a_misspelt_variable_is_an_error(variable, expected):
    assert fault(STREAM, {variable: "1"}) == expected


def test_labels_and_queries_from_a_file(tmp_path):
    (tmp_path / "labels.txt").write_text("rot\ngrün\nblau\n", encoding="utf-8")
    path = tmp_path / "worker.toml"
    table = STREAM.replace("domain_size = 10", 'labels_file = "labels.txt"')
    path.write_text(table + "[[streams.queries]]\nname = 'warm'\nvalues = ['rot', 2]", encoding="utf-8")
    stream = load(path, {}).streams[0].stream
    assert stream.labels == ("rot", "grün", "blau")
    assert stream.oracle.domain_size == 3
    assert stream.queries == (("warm", (0, 2)),)


def test_a_missing_file():
    with pytest.raises(ConfigError, match="cannot be read"):
        load(Path("/nonexistent/worker.toml"))


def test_served_by_name():
    other = STREAM.replace("colours", "shapes").replace("colour-reports", "shape-reports")
    config = parse(STREAM + other)
    assert config.served("shapes").topic == "shape-reports"
    with pytest.raises(ConfigError, match="needed with several streams"):
        config.served(None)
    with pytest.raises(ConfigError, match="'x' given; the configuration has colours, shapes"):
        config.served("x")
