"""Errors: one that ends the audit, and one that ends the comparison of a partition."""


class AuditError(RuntimeError):
    """The audit could not be made; says nothing about the counts."""


class Difference(Exception):  # noqa: N818  # the outcome that the audit looks for
    """Redis and the log disagree."""
