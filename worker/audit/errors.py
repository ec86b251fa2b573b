"""Errors of the audit."""


class AuditError(RuntimeError):
    """The audit failed and has no verdict on the counts."""


class Difference(Exception):  # noqa: N818  # the outcome that the audit looks for
    """Stored counts, snapshots and the log disagree."""
