"""Healthy load under a real Prometheus with the shipped rules: no alert may fire.

``python -m tests.long.alerts --minutes 60``: three workers of four processes count two streams with windows on six
partitions, and each is restarted once. At the end, the series of each alert must have samples, and a line of JSON in
``--lines`` has the value nearest to its threshold. The exit code is 1 if an alert fires, fails or has no data.
"""

import argparse
import json
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.long.alerts.health import Health
from tests.long.alerts.rules import RULES, Alert, alerts
from tests.support import prometheus
from tests.support.harness import until

SCRAPE, EVALUATE = "5s", "15s"
"""As deploy/prometheus/prometheus.yml has it."""
_LOOK_SECONDS = 5.0


class Watch:
    """Polls the alerts of a Prometheus."""

    def __init__(self, scraper: prometheus.Prometheus) -> None:
        self._scraper = scraper
        # state -> alert -> its labels and greatest value, each time it was seen in the state
        self.seen: dict[str, dict[str, list[str]]] = {
            "pending": defaultdict(list),
            "firing": defaultdict(list),
        }
        self.errors: dict[str, str] = {}
        self.looks = 0

    def look(self) -> Iterable[str]:
        """Looks once; returns what is new."""
        self.looks += 1
        new = []
        for alert in self._scraper.get("alerts")["alerts"]:
            labels = dict(alert["labels"])
            name = labels.pop("alertname")
            said = self.seen[alert["state"]][name]
            if (text := json.dumps(labels, sort_keys=True)) not in said:
                said.append(text)
                new.append(f"{name} {alert['state']} {text} at {alert['value']}")
        for group in self._scraper.get("rules")["groups"]:
            for rule in group["rules"]:
                if rule["health"] == "err":
                    self.errors[rule["name"]] = rule["lastError"]
        return new

    def verdict(self, alert: Alert, began: float) -> dict[str, Any]:
        """Describes an alert since a moment."""
        minutes = math.ceil((time.time() - began) / 60)
        samples = {
            series: sum(self._scraper.values(f"count_over_time({series}[{minutes}m])"))
            for series in alert.series()
        }
        curves = self._scraper.get(
            "query_range", query=alert.left, start=f"{began:.0f}", end=f"{time.time():.0f}", step="15"
        )["result"]
        values = [float(value) for curve in curves for _, value in curve["values"]]
        finite = [value for value in values if math.isfinite(value)]
        return {
            "alert": alert.name,
            "pending": self.seen["pending"].get(alert.name, []),
            "firing": self.seen["firing"].get(alert.name, []),
            "error": self.errors.get(alert.name, ""),
            "samples": samples,
            "values": len(finite),
            "nearest": alert.nearest(finite) if finite else None,
            "fires": f"{alert.operator} {alert.threshold:g}",
            "silent": alert.name not in self.seen["firing"]
            and alert.name not in self.errors
            and bool(finite)
            and all(samples.values()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long it is watched")
    parser.add_argument("--rate", type=float, default=100.0, help="records a second of each stream")
    parser.add_argument("--rules", type=Path, default=RULES, help="the file of rules")
    parser.add_argument(
        "--lines", type=Path, default=Path("build/alerts.jsonl"), help="where lines of JSON go"
    )
    arguments = parser.parse_args()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    arguments.lines.parent.mkdir(parents=True, exist_ok=True)
    with Health(arguments.rate, say) as health, arguments.lines.open("w", encoding="utf-8") as lines:
        rules = arguments.rules.resolve()
        with prometheus.running(health.folder, health.targets, rules, SCRAPE, EVALUATE) as scraper:
            until(lambda: scraper.values("sum(up)") == [len(health.targets)], "all workers are scraped")
            say(f"watching {', '.join(health.targets)}")
            watch, since = Watch(scraper), time.time()
            middle, end = (time.monotonic() + share * 60 * arguments.minutes for share in (0.5, 1.0))
            minute, rolled = 0, False
            while time.monotonic() < end:
                for line in watch.look():
                    say(line)
                if not rolled and time.monotonic() > middle:
                    rolled = True
                    for number in range(3):
                        code, seconds = health.restart(number)
                        say(f"worker {number} ended with {code}, and serves again after {seconds:.1f} s")
                        for line in watch.look():
                            say(line)
                if (time.time() - since) // 60 > minute:
                    minute += 1
                    say(f"{health.counted()} counted, load of the machine {os.getloadavg()[0]:.1f}")
                time.sleep(_LOOK_SECONDS)
            sent = health.finish()
            say(f"{sent} sent and counted, {[load.failed for load in health.loads]} failed")
            for line in watch.look():
                say(line)
            verdicts = [watch.verdict(alert, since) for alert in alerts(rules).values()]
        for verdict in verdicts:
            print(json.dumps(verdict), file=lines)
            say(
                ", ".join(
                    f"{name} {verdict[name]}" for name in ("alert", "silent", "nearest", "fires", "values")
                )
            )
    sys.exit(0 if all(verdict["silent"] for verdict in verdicts) else 1)


if __name__ == "__main__":
    main()
