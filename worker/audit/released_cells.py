"""Messages with the released counts of each document's segment.

Publishers continue from them. They have the counts of all time and of `late`, and the newest cut at which the rest of
the segment was released.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from worker.audit.errors import Difference
from worker.audit.parsing import Key
from worker.audit.records import Ints
from worker.audit.snapshots import UNREADABLE, Message, Whole
from worker.audit.vectors import read


@dataclass(frozen=True)
class ReleasedCell:
    """Published counts of a document's segment."""

    reports: int
    late: int
    counts: Ints  # support of each value
    counts_late: Ints
    closed: int  # the rest was released without panes that end later
    offsets: Mapping[int, int]  # partition -> offset up to which the rest was released
    lost: int  # number of offsets in gaps below these offsets, when the rest was released


class ReleasedCells:
    """Parser of the messages, in their order on the topic."""

    def __init__(self) -> None:
        self._wholes: dict[str, Whole] = {}

    def take(self, message: Message) -> None:
        """Adds the next message."""
        new = Whole(message.headers)
        if not message.value:
            self._wholes.pop(message.part, None)
            return
        whole = self._wholes.setdefault(message.part, new)
        if whole.mark != new.mark:
            whole = self._wholes[message.part] = new
        whole.messages[message.key] = message.value
        whole.types[message.key] = message.headers["content-type"].decode()

    def finish(self) -> dict[Key, ReleasedCell]:
        """Returns the newest counts; raises `Difference` if a message is missing."""
        found = dict[Key, ReleasedCell]()
        for name, whole in self._wholes.items():
            document, _, segment = name[1:].partition(":")
            try:
                if len(whole.messages) != whole.parts:
                    raise Difference(f"{len(whole.messages)} of {whole.parts} messages are on the topic")
                found[document, segment] = _cell(whole)
            except (Difference, *UNREADABLE) as error:
                raise Difference(f"released counts of {name[1:]}: {error or repr(error)}") from None
        return found


def _cell(whole: Whole) -> ReleasedCell:
    about: Mapping[str, Any] = json.loads(whole.messages["released"])
    reports, numbers = about["reports"], dict[str, Ints]()
    for what in ("all", "late"):
        found = read(what, "released", about, whole.messages, whole.types)
        numbers[what] = found.values.astype(np.int64)
    rest = about["rest"]
    offsets = {int(p): int(offset) for p, offset in rest["offsets"].items()}
    return ReleasedCell(
        *(int(reports["all"]), int(reports["late"]), numbers["all"], numbers["late"]),
        *(int(rest["closed"]), offsets, int(rest["lost"])),
    )
