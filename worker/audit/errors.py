"""Errors of the audit."""


class AuditError(RuntimeError):
    """The audit failed; the counts may be right or wrong."""


class Difference(Exception):  # noqa: N818  # the outcome that the audit looks for
    """Redis and the log disagree."""
