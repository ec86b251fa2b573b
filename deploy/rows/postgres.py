"""Copies the rows topic into PostgreSQL, each row exactly once.

    python -m deploy.rows.postgres --config worker.toml postgresql://localhost/analytics

The sink creates the tables `ldp_rows` and `ldp_rows_read` if they do not exist, and follows the topic until it is
stopped. `ldp_rows_read` holds the next offset to read. The transaction that writes the rows also moves that offset, so
the sink can be killed at any time, and a second sink on the same table fails. A batch ends at the last stable offset of
the topic, so a query sees only complete snapshots.

Other programs may write to the topic. The sink parses every record against the schema of rows, and passes values to
Postgres as data, never as part of a statement. It skips records that are not rows, and prints their number and the
reason.

The sink needs the worker's package, psycopg (`pip install 'psycopg[binary]'`), and `READ` on the topic.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import psycopg
from kafka.errors import KafkaError

from ldp.snapshot import RowKey, RowValue
from ldp.terminal import printable
from worker.config import Config, ConfigError, load
from worker.kafka.client.topics import TopicError
from worker.kafka.snapshots.rows import RowReader

TABLES = """
CREATE TABLE IF NOT EXISTS ldp_rows (
    stream text, window_name text, window_start timestamptz, method text, query text, rank integer,
    value bigint, label text, estimate double precision NOT NULL, low double precision, high double precision,
    window_end timestamptz, n bigint NOT NULL, sequence bigint NOT NULL, final boolean NOT NULL,
    complete boolean NOT NULL,
    PRIMARY KEY (stream, window_name, window_start, method, query, rank)
);
CREATE TABLE IF NOT EXISTS ldp_rows_read (topic text PRIMARY KEY, next_offset bigint NOT NULL);
"""
_KEY, _REST = ", ".join(RowKey._fields), ", ".join(RowValue._fields)
_PLACES = ", ".join(
    f"to_timestamp(%({name})s / 1000.0)" if name in ("window_start", "window_end") else f"%({name})s"
    for name in RowKey._fields + RowValue._fields
)
_WRITE = f"""
INSERT INTO ldp_rows ({_KEY}, {_REST}) VALUES ({_PLACES})
ON CONFLICT ({_KEY}) DO UPDATE SET ({_REST}) = ({", ".join(f"EXCLUDED.{name}" for name in RowValue._fields)})
"""
_DELETE = f"DELETE FROM ldp_rows WHERE ({_KEY}) = ({', '.join(_PLACES.split(', ')[: len(RowKey._fields)])})"
_AGAIN_SECONDS = 1.0
"""Pause between two reads of the topic."""


class RefusedError(RuntimeError):
    """Postgres did not apply the rows, or another sink moved the offset."""


class Table:
    """The tables of rows in one database; created if they do not exist.

    Raises:
        RefusedError: Postgres is unreachable, or refuses the tables.
    """

    def __init__(self, database: str, topic: str) -> None:
        self._database, self._topic = database, topic
        try:
            with self._connected() as connection:
                connection.execute(TABLES)
                connection.execute(
                    "INSERT INTO ldp_rows_read VALUES (%s, 0) ON CONFLICT DO NOTHING", (topic,)
                )
                found = connection.execute(
                    "SELECT next_offset FROM ldp_rows_read WHERE topic = %s", (topic,)
                ).fetchone()
        except psycopg.Error as error:
            raise RefusedError(str(error)) from None
        assert found is not None
        self.offset = int(found[0])

    def apply(self, rows: Mapping[RowKey, RowValue | None], offset: int) -> None:
        """Writes rows and the next offset in one transaction.

        Raises:
            RefusedError: another sink has moved the offset, or Postgres did not apply the rows. If the connection broke
                during the commit, Postgres may have applied the rows, so read the offset again.
        """
        written = [key._asdict() | value._asdict() for key, value in rows.items() if value is not None]
        deleted = [key._asdict() for key, value in rows.items() if value is None]
        try:
            with self._connected() as connection:
                moved = connection.execute(
                    "UPDATE ldp_rows_read SET next_offset = %s WHERE topic = %s AND next_offset = %s",
                    (offset, self._topic, self.offset),
                )
                if moved.rowcount != 1:
                    raise RefusedError(f"another sink follows topic {self._topic} into this table")
                with connection.cursor() as cursor:
                    cursor.executemany(_DELETE, deleted)
                    cursor.executemany(_WRITE, written)
        except psycopg.Error as error:
            raise RefusedError(str(error)) from None
        self.offset = offset

    def _connected(self) -> psycopg.Connection:
        """Opens a connection for one batch; leaving the `with` block commits."""
        return psycopg.connect(self._database, client_encoding="utf8", application_name="ldp-rows")


def follow(config: Config, database: str, stopping: threading.Event, once: bool) -> None:
    """Copies rows until `stopping` is set, or once up to the current end."""
    topic = config.rows.topic or ""
    with RowReader(config, on_passed=_complain) as reader:
        table = Table(database, topic)
        reader.offset = table.offset
        while not stopping.is_set():
            rows = reader.read()
            if rows or reader.skipped:
                table.apply(rows, reader.offset)
                print(f"{len(rows)} rows of {topic} up to offset {reader.offset}", flush=True)
                for reason, count in reader.skipped.most_common():
                    _complain(f"skipped {count}: {reason}")
            if once:
                return
            stopping.wait(_AGAIN_SECONDS)


def _complain(what: object) -> None:
    print(printable(str(what)), file=sys.stderr, flush=True)


def main() -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="postgres", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "database", help="Postgres connection string without a password; set the password in PGPASSWORD"
    )
    parser.add_argument("--config", type=Path, default=Path("worker.toml"), help="the worker's configuration")
    parser.add_argument("--once", action="store_true", help="stop at the topic's current end")
    given = parser.parse_args()
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        follow(load(given.config), given.database, stopping, given.once)
    except (ConfigError, TopicError, KafkaError, RefusedError) as error:
        print(f"{parser.prog}: {printable(str(error), lines=True)}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
