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
        ("streams[2]", None),
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
