"""Line numbers of the keys of faults."""

import pytest

from worker.config.faults import ConfigError
from worker.config.lines import line_of
from worker.config.loading import load

FILE = '''# the first
group = "a" # beside

kafka.member = "m"
[redis]
"url" = """
[http]
port = 1
"""
[http]
  port = 2

[[streams]]
name = "one"
labels = [
  "red",  # ]
  "[green]",
]
[[streams.queries]]
name = "q"
[[streams.queries]]
weights = {red = 1, green = 2}
[[streams]]
[[streams.queries]]
name = "z"
[dead_letters]'''


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("group", 2),
        ("kafka", 4),
        ("kafka.member", 4),
        ("kafka.bootstrap_servers", 4),
        ("redis.url", 6),
        ("http.port", 11),
        ("http.host", 10),
        ("streams[0]", 13),
        ("streams[0].topic", 13),
        ("streams[0].labels[1]", 15),
        ("streams[0].queries[0].name", 20),
        ("streams[0].queries[1].weights.green", 22),
        ("streams[1].name", 23),
        ("streams[1].queries[0].name", 25),
        ("dead_letters.topic", 26),
        ("snapshots.topic", None),
    ],
)
def test_a_key_is_located_by_its_line_or_table(key, line, ends):
    assert line_of(FILE.replace("\n", ends), key) == line


def test_a_fault_names_file_and_line_except_for_variables(tmp_path):
    file = tmp_path / "w.toml"
    file.write_text('group = "a b"\n[kafka]\nmembr = "m"\n')
    with pytest.raises(ConfigError) as caught:
        load(file, {"LDP_WORKER_HTTP__PORT": "many"})
    group, membr, port, streams = str(caught.value).splitlines()
    assert group.startswith(f"{file}:1: group: ")
    assert membr.startswith(f"{file}:3: kafka.membr: no such key; did you mean member? ")
    assert port.startswith("http.port (LDP_WORKER_HTTP__PORT): ")
    assert streams.startswith("streams: nothing given; ")


STREAM = """[[streams]]
name = "colours"
topic = "colour-reports"
protocol = "olh"
epsilon = "1"
domain_size = 10
"""
LABELS = STREAM.replace("domain_size = 10", 'labels = ["red", "blue"]')
SUBSET, PGR, RESPONSE = (STREAM.replace("olh", name) for name in ("subset", "pgr", "response"))
WITHOUT_EPSILON = RESPONSE.replace('epsilon = "1"', "")
QUERY = '[[streams.queries]]\nname = "warm"\n'
DAILY = STREAM.replace("10\n", "2000000\n")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (STREAM.replace('"1"', '"0" #!'), "streams[colours].epsilon"),
        (STREAM.replace('"olh"', '"rappor" #!'), "streams[colours].protocol"),
        (STREAM + "hash = 'md5' #!", "streams[colours].hash"),
        (STREAM + "g = 1 #!", "streams[colours].g"),
        (SUBSET + "k = 0 #!", "streams[colours].k"),
        (PGR + "dimension = 3 #!", "streams[colours].dimension"),
        (PGR + "prime = 4 #!\ndimension = 3", "streams[colours].prime"),
        (WITHOUT_EPSILON.replace('response"', 'response" #!'), "streams[colours].protocol"),
        (WITHOUT_EPSILON + 'p = "3/2" #!', "streams[colours].p"),
        (RESPONSE.replace('"1"', '"1" #!') + 'p = "3/4"', "streams[colours].epsilon"),
        (
            STREAM.replace("olh", "unary").replace('"1"', '"infinite" #!') + "p = '3/4'\nq = '1/2'",
            "streams[colours].epsilon",
        ),
        (STREAM + 'labels = ["red"] #!', "streams[colours].labels"),
        (STREAM.replace("10", "2") + "labels = [ #!\n'red',\n'red']", "streams[colours].labels"),
        (LABELS + QUERY + "values = ['green'] #!", "streams[colours].queries[warm].values"),
        (LABELS + QUERY + "values = ['red', 0] #!", "streams[colours].queries[warm].values"),
        (LABELS + QUERY + "where = ['*green*'] #!", "streams[colours].queries[warm].where"),
        (LABELS + QUERY + "top = 3 #!", "streams[colours].queries[warm].top"),
        (LABELS + QUERY + "top = 1\nwhere = ['red'] #!", "streams[colours].queries[warm].where"),
        (LABELS + QUERY + "top = 1\n" + QUERY[:-1] + " #!\ntop = 2", "streams[colours].queries[warm].name"),
        (STREAM + 'windows = ["1h", "60m"] #!', "streams[colours].windows"),
        (STREAM + 'windows = ["7d every 1m"] #!', "streams[colours].windows"),
        (STREAM + 'retain = "1d" #!', "streams[colours].retain"),
        (DAILY.replace("]]", "]] #!") + 'windows = ["24h every 1h"]', "streams[colours]"),
        (DAILY.replace("]]", "]] #!") + QUERY + "top = 60000\n[rows]\ntopic = 'r'", "streams[colours]"),
        (STREAM + STREAM.replace('"colours"', '"colours" #!'), "streams[colours].name"),
        (STREAM + STREAM.replace("colours", "a").replace('ts"', 'ts" #!'), "streams[a].topic"),
        (STREAM.replace("colour-reports", 'ldp-snapshots" #!"'), "streams[colours].topic"),
        (STREAM + "[snapshots]\ntopic = 'colour-reports' #!", "snapshots.topic"),
        (
            STREAM + "[rows]\ntopic = 'r'\nmethods = ['base', 'norm'] #!\n[snapshots]\nmethods = ['base']",
            "rows.methods",
        ),
        (STREAM + "[kafka]\nmember = 'a'\nsasl_username = 'me' #!", "kafka.sasl_username"),
        (STREAM + "[kafka]\nmember = 'a'\nsecurity_protocol = 'SASL_SSL' #!", "kafka.security_protocol"),
        (STREAM + "[kafka]\nmemory_bytes = 16777216 #!", "kafka.memory_bytes"),
        (STREAM + "[kafka]\nmember = 'a'\nmax_batch_bytes = 1073741824 #!", "kafka.max_batch_bytes"),
        (STREAM + "[redis]\nurl = 'redis://h'\nssl_cafile = 'ca' #!", "redis.ssl_cafile"),
        (STREAM + "[redis]\nurl = 'redis://h'\nsentinel_password = 'x' #!", "redis.sentinel_password"),
    ],
)
def test_a_fault_of_several_keys_names_one_of_them_with_its_line(text, key, tmp_path):
    file = tmp_path / "w.toml"
    file.write_text(text)
    line = text[: text.index("#!")].count("\n") + 1
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value).startswith(f"{file}:{line}: {key}: ")
