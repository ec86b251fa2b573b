"""The quick faults of tests/long/soak, each once on one stream under load."""

import pytest

from tests.long.soak import faults
from tests.long.soak.stage import Stage

pytestmark = [pytest.mark.integration, pytest.mark.long]

QUICK = (
    *(faults.redis_swallowed, faults.redis_set_back, faults.redis_failed_over),
    *(faults.kafka_cut, faults.kafka_killed, faults.worker_silent, faults.clock_jumped),
)


def test_no_report_is_lost_or_doubled_by_faults_of_services_and_workers():
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
