"""Budget of a device, kept in a SQLite file across kills and processes.

The file has the newest period, its number of reports, and for memoised noise a draw for each value that the device has
reported. It therefore contains the user's values: keep it where no other program can read it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ldp.privacy.declaration import Declaration

_WAIT_SECONDS = 60.0  # Longest wait for another process
_TABLES = (
    "CREATE TABLE IF NOT EXISTS spent (document TEXT PRIMARY KEY, period INTEGER NOT NULL, reports INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS memoised (document TEXT, value INTEGER, noise BLOB NOT NULL, "
    "PRIMARY KEY (document, value))",
)
_DAMAGED = "; to report again, delete the file, which forgets the reports of this period and memoised noise"
_EPOCH = datetime.fromtimestamp(0, UTC)


class Spent(Exception):  # noqa: N818  # a state, and not a mistake
    """Raised if the device has sent all reports of the period.

    Attributes:
        until: the end of the period, when the device may report again.
    """

    def __init__(self, until: datetime) -> None:
        super().__init__(
            f"all reports of this period are spent; the next period begins at {until.isoformat()}"
        )
        self.until = until


class Budget:
    """Counts the reports of one document in a file.

    Each step is one durable transaction, which ends before the report exists. A kill can therefore lose a report, but
    cannot repeat its cost. Periods never go back: if the clock is set back, the newest period stays the current one.

    Args:
        path: the SQLite file. Several documents and processes can share it.
        document: the document's fingerprint in hexadecimal.
        privacy: the document's declaration.
        clock: returns seconds since 1970-01-01T00:00Z.

    Raises:
        OSError: a path that cannot be created.
        sqlite3.Error: a file that cannot be read or written.
    """

    def __init__(
        self, path: str | PathLike[str], document: str, privacy: Declaration, clock: Callable[[], float]
    ) -> None:
        self._path, self._document, self._privacy, self._clock = os.fspath(path), document, privacy, clock
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with self._transaction() as file:
            for table in _TABLES:
                file.execute(table)

    def spend(self) -> None:
        """Records one report. Raises `Spent` at the declared number."""
        with self._transaction() as file:
            self._record(file)

    def spend_memoised(self, value: int, draw: Callable[[int], bytes]) -> bytes:
        """Records one report, and returns the noise that is stored for the value.

        `draw` returns new noise, for the first report of a value. Raises `Spent` as `spend` does.
        """
        key = self._document, value
        with self._transaction() as file:
            self._record(file)
            found = file.execute(
                "SELECT noise FROM memoised WHERE document = ? AND value = ?", key
            ).fetchone()
            noise: bytes = draw(value) if found is None else found[0]
            if found is None:
                file.execute("INSERT INTO memoised VALUES (?, ?, ?)", (*key, noise))
        return noise

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Opens the file, which a fork must not share, for one transaction."""
        file = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)
        try:
            file.execute("PRAGMA synchronous = EXTRA")
            file.execute("BEGIN IMMEDIATE")
            yield file
            file.execute("COMMIT")
        except sqlite3.Error as error:
            damaged = type(error) is sqlite3.DatabaseError  # subclasses are for locks, full disks and SQL
            error.args = (f"{self._path}: {error}{_DAMAGED * damaged}",)
            raise
        finally:
            file.close()

    def _record(self, file: sqlite3.Connection) -> None:
        length = self._privacy.period_seconds
        now, reports = int(self._clock() // length), 0
        found = file.execute(
            "SELECT period, reports FROM spent WHERE document = ?", (self._document,)
        ).fetchone()
        if found is not None and found[0] >= now:
            now, reports = found
        if reports >= self._privacy.reports:
            raise Spent(_EPOCH + timedelta(seconds=(now + 1) * length))
        file.execute("INSERT OR REPLACE INTO spent VALUES (?, ?, ?)", (self._document, now, reports + 1))
