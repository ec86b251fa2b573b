"""The rows in a Postgres: what is on the topic of rows stands in a table, exactly once, whole snapshots at a time.

    python -m deploy.rows.postgres --config worker.toml postgresql://localhost/analytics

makes the tables `ldp_rows` and `ldp_rows_read` if they are not there, and follows the topic until it is told to stop.
How far it has come stands in the second one, and is moved by the same transaction as the rows: so it may be killed
at any time and goes on where it was, and of two at once one is refused. What it applies at a time ends where every
transaction of the topic is decided, so who reads the table sees each snapshot whole. It needs the worker's package, the
program `psql`, and of Kafka no more than to read the topic.
"""

import argparse
import csv
import io
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from kafka.errors import KafkaError

from worker.config import Config, ConfigError, load
from worker.kafka.rows import RowReader
from worker.kafka.topics import TopicError

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
KEY = "stream, window_name, window_start, method, query, rank"
REST = "value, label, estimate, low, high, window_end, n, sequence, final, complete"
APPLY = f"""
CREATE TEMPORARY TABLE apart ON COMMIT DROP AS SELECT
    came.value IS NULL AS gone, stream, window_name, to_timestamp(start_ms / 1000.0) AS window_start, method,
    query, rank, it.value, label, estimate, low, high, to_timestamp(end_ms / 1000.0) AS window_end, n, sequence, final,
    complete
FROM came, jsonb_to_record(
    coalesce(came.value, came.key) || jsonb_build_object(
        'start_ms', came.key -> 'window_start', 'end_ms', came.value -> 'window_end')
) AS it (
    stream text, window_name text, start_ms bigint, method text, query text, rank integer,
    value bigint, label text, estimate double precision, low double precision, high double precision,
    end_ms bigint, n bigint, sequence bigint, final boolean, complete boolean
);
DELETE FROM ldp_rows WHERE ({KEY}) IN (SELECT {KEY} FROM apart WHERE gone);
INSERT INTO ldp_rows ({KEY}, {REST}) SELECT {KEY}, {REST} FROM apart WHERE NOT gone
ON CONFLICT ({KEY}) DO UPDATE SET ({REST}) = ({", ".join(f"EXCLUDED.{name}" for name in REST.split(", "))});
COMMIT;
"""
_AGAIN_SECONDS = 1.0
"""How often is asked whether something has come."""


class RefusedError(RuntimeError):
    """Postgres did not do it; the message is its own."""


class Table:
    """The rows in one database.

    Args:
        database: how `psql` reaches it, a URL or `name=value` pairs.
        topic: whose rows.
    """

    def __init__(self, database: str, topic: str) -> None:
        self._database, self._topic = database, topic
        self._psql(f"{TABLES} INSERT INTO ldp_rows_read VALUES ('{topic}', 0) ON CONFLICT DO NOTHING;")
        said = self._psql(f"SELECT next_offset FROM ldp_rows_read WHERE topic = '{topic}';")
        self.offset = int(said)

    def apply(self, rows: Mapping[bytes, bytes | None], offset: int) -> None:
        """Puts what has come into the table, and notes how far that is, in one transaction.

        Raises:
            RefusedError: it was not done, as another one has moved on or Postgres did not do it; or nobody knows, if
                Postgres went away just then: who reads the offset again does.
        """
        came = io.StringIO()
        writer = csv.writer(came, lineterminator="\n")
        writer.writerows((key.decode(), value and value.decode()) for key, value in rows.items())
        moved = f"""
            UPDATE ldp_rows_read SET next_offset = {offset}
            WHERE topic = '{self._topic}' AND next_offset = {self.offset};
            IF NOT FOUND THEN RAISE 'another one follows this topic into this table'; END IF;
        """
        self._psql(
            f"BEGIN; DO $$ BEGIN {moved} END $$;"
            " CREATE TEMPORARY TABLE came (key jsonb, value jsonb) ON COMMIT DROP;"
            f" COPY came FROM STDIN (FORMAT csv);\n{came.getvalue()}\\.\n{APPLY}"
        )
        self.offset = offset

    def _psql(self, script: str) -> str:
        command = ["psql", "--no-psqlrc", "-qtA", "--set=ON_ERROR_STOP=1", f"--dbname={self._database}"]
        try:
            done = subprocess.run(
                command,
                input=script,
                capture_output=True,
                check=False,
                encoding="utf-8",
                start_new_session=True,
            )
        except FileNotFoundError:
            raise RefusedError(
                "there is no psql on PATH (Debian: apt-get install postgresql-client)"
            ) from None
        if done.returncode:
            raise RefusedError(done.stderr.strip())
        return done.stdout.strip()


def follow(config: Config, database: str, stopping: threading.Event, once: bool) -> None:
    """Keeps the table up to date until it is to stop, or has all that is there now.

    Raises:
        ConfigError, TopicError, KafkaError, RefusedError: see what they say.
    """
    topic = config.rows.topic or ""
    with RowReader(config) as reader:
        table = Table(database, topic)
        reader.offset = max(reader.offset, table.offset)
        while not stopping.is_set():
            if rows := reader.read():
                table.apply(rows, reader.offset)
                print(f"{len(rows)} rows of {topic} up to offset {reader.offset}", flush=True)
            if once:
                return
            stopping.wait(_AGAIN_SECONDS)


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="postgres", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "database", help="a URL of Postgres, as psql takes it; the password better in PGPASSWORD"
    )
    parser.add_argument(
        "--config", type=Path, default=Path("worker.toml"), help="says where the brokers and rows are"
    )
    parser.add_argument("--once", action="store_true", help="end when all is there that is on the topic now")
    given = parser.parse_args()
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        follow(load(given.config), given.database, stopping, given.once)
    except (ConfigError, TopicError, KafkaError, RefusedError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
