"""The faults of tests/soak that are quick, each once, on one stream under load; ``make soak`` is for all of them."""

import pytest

from tests.soak import faults
from tests.soak.stage import Stage

pytestmark = pytest.mark.integration

QUICK = (faults.redis_swallowed, faults.redis_failed_over, faults.kafka_cut, faults.clock_jumped)
"""Redis that is failed over cuts its connections, too."""


@pytest.mark.long
def test_nothing_is_lost_or_doubled_by_what_happens_to_stores_brokers_and_clocks():
    with Stage(11, 200.0, print) as stage:
        for fault in QUICK:
            fault(stage)
            print(f"{fault.__name__}: recovered after {stage.recovered():.1f} s")
            stage.assert_serving()
            stage.assert_right()
        ended = stage.finish()
    assert ended["reports_counted"] == ended["reports_sent"]
    assert ended["records_rejected"] == ended["malformed_sent"]
    assert ended["unacknowledged"] == 0
    assert ended["windows_final"] >= ended["windows_deleted"] > 0
    assert ended["records_late"] > 0
    assert ended["records_undated"] > 0
