"""The page on windows matches the output of its commands, and the accepted configuration."""

import re
from pathlib import Path

from tests.support.docs import page
from worker.config import parse
from worker.config.snapshots import MOST_BYTES as MOST_SNAPSHOT
from worker.config.windows import MOST_KEPT, MOST_OPEN
from worker.counting.bounds import MOST_BYTES, MOST_PANES
from worker.counting.windows import Windowing
from worker.kafka.client.transactions import transaction_seconds
from worker.observe.metrics import Metrics

SECTION = page("guides/windows")
STREAM = '[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'


def test_the_documented_configuration_is_valid():
    (toml,) = re.findall(r"^```toml\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    (served,) = parse(toml.replace("[[streams]]\n", STREAM)).streams
    wanted = Windowing(("all", "1h", "24h every 1h"), grace=600_000, max_out_of_orderness=60_000)
    assert served.configured.limits.windowing == wanted


def test_documented_bounds_match_the_configuration():
    text = " ".join(SECTION.split())
    assert f"more than {MOST_PANES:,} panes or {MOST_BYTES >> 30} GiB of counts per partition" in text
    assert f"{MOST_OPEN} windows open at once, {MOST_KEPT:,} final windows on the topic" in text
    assert f"or {MOST_SNAPSHOT >> 30} GiB per snapshot" in text
    a_second = "may be open for {} s, or for 1 s per {} MiB if that is longer"
    assert a_second.format(transaction_seconds(0), 16) in text
    assert transaction_seconds(100 * 16 << 20) == 100


def test_named_metrics_and_alerts_exist():
    there = {f"{family.name}_total" for family in Metrics().registry.collect()}
    assert set(re.findall(r"ldp_worker_\w+", SECTION)) <= there
    rules = (Path(__file__).parents[3] / "deploy/prometheus/rules.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"Ldp[A-Z]\w+", SECTION))
    assert named
    assert all(f"- alert: {alert}\n" in rules for alert in named)
