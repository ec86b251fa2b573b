"""What ends the audit, and what ends the comparison of a partition."""


class AuditError(RuntimeError):
    """The audit could not be made; it says nothing about the counts."""


class Difference(Exception):  # noqa: N818  # not an error of the audit, but what it looks for
    """Redis and the log disagree."""
