"""The sink of rows into Postgres, behind a transaction that stays open."""

import threading
from types import SimpleNamespace

import pytest

from deploy.rows import postgres


@pytest.fixture
def follow(monkeypatch):
    """Follows a topic whose first open transaction is the next of these each second; returns the sink's output and
    times."""

    def run(opens, once=False):
        now, coming, said = [0.0], iter(opens), []
        stopping = threading.Event()

        class Reader:
            def __init__(self, config, on_passed):
                self.offset, self.skipped = 0, {}

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def read(self):
                return {}

            def open_since(self):
                at = next(coming)
                if at == "end":
                    stopping.set()
                    return None
                return at

        def wait(seconds):
            now[0] += seconds

        stopping.wait = wait
        monkeypatch.setattr(postgres, "RowReader", Reader)
        monkeypatch.setattr(postgres, "Table", lambda database, topic: SimpleNamespace(offset=0))
        monkeypatch.setattr(postgres, "time", SimpleNamespace(monotonic=lambda: now[0]))
        monkeypatch.setattr(postgres, "_complain", lambda what: said.append((now[0], what)))
        config = SimpleNamespace(rows=SimpleNamespace(topic="ldp-rows"))
        postgres.follow(config, "postgresql://", stopping, once)
        return said

    return run


def test_an_open_transaction_is_reported_once(follow):
    ((at, said),) = follow([17] * 500 + ["end"])
    assert at == postgres._OPEN_SECONDS
    assert said.startswith("topic ldp-rows: a transaction is open since offset 17; ")


def test_only_transactions_that_stay_open_are_reported(follow):
    assert follow([offset for offset in range(500) for _ in range(50)] + [None] * 100 + ["end"]) == []
    said = follow([17] * 100 + [None] + [40] * 100 + ["end"])
    assert ["offset 17" in said[0][1], "offset 40" in said[1][1]] == [True, True]
    assert len(said) == 2


def test_a_sink_run_once_reports_an_open_transaction_at_once(follow):
    assert len(follow([17], once=True)) == 1
