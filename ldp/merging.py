"""Windows, labels and declaration of merged estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ldp.estimate import Estimate, Window
    from ldp.privacy.declaration import Declaration


def common(
    merged: Sequence[Estimate],
) -> tuple[tuple[Window, ...], tuple[str, ...] | None, Declaration | None]:
    """Returns the windows, labels and declaration of merged estimates.

    Raises ValueError for an estimate without a window, different labels, or different declarations.
    """
    if not all(one.windows for one in merged):
        raise ValueError(
            "an estimate of the whole stream cannot be merged: it contains the reports of every window;"
            " set the window of each estimate with within(start, end)"
        )
    labels = {one.labels for one in merged} - {None}
    if len(labels) > 1:
        raise ValueError("estimates with different labels cannot be merged: their values differ")
    if len(privacy := {one.privacy for one in merged}) > 1:
        raise ValueError("estimates with different privacy declarations cannot be merged")
    windows = tuple(window for one in merged for window in one.windows)
    return windows, next(iter(labels), None), privacy.pop()
