"""Whether the newest snapshot can be gone by: the two numbers that stand in both dashboards."""

from deploy.grafana.panels import Json, stat
from deploy.grafana.queries import of, said


def newest(age_alert: str = "", complete_alert: str = "") -> list[Json]:
    """How old the newest snapshot is, and whether it has every report.

    Args:
        age_alert: the alert that the one is held against, where it is to be named.
        complete_alert: that of the other.

    Example:
        >>> [panel["title"] for panel in newest()]
        ['Snapshot age', 'Complete']
    """
    return [
        stat(
            "Snapshot age",
            _named("Time since the newest snapshot last covered all that was counted.", age_alert),
            f"min by (stream) ({of('ldp_worker_snapshot_age_seconds')})",
            "s",
            steps=((None, "green"), (30, "orange"), (60, "red")),
        ),
        stat(
            "Complete",
            _named(
                "Whether the newest snapshot has every report. No: the log lost records before a worker counted them,"
                " or a partition has no counts in this Redis.",
                complete_alert,
            ),
            f"min by (stream) ({said('ldp_worker_snapshot_complete')})",
            steps=((None, "red"), (1, "green")),
            words={"0": "no", "1": "yes"},
        ),
    ]


def _named(text: str, alert: str) -> str:
    return f"{text} {alert}." if alert else text
