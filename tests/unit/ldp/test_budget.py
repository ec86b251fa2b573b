"""The budget of a device: exact over crashes, kills, jumps of the clock and several processes."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import types
from collections import Counter
from contextlib import closing, suppress
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import ldp
from ldp import budget
from ldp.client import Client
from ldp.oracles import RAPPOR
from ldp.privacy.declaration import Declaration

DAY = 86_400.0
GRR = {"protocol": "grr", "epsilon": "1/1", "domain_size": 256}
SOURCE = Path(budget.__file__).read_text()


def document(noise="fresh", reports=1, protocol=None):
    protocol = protocol or {"protocol": "grr", "epsilon": "1/1", "domain_size": 3}
    declared = {"unit": "device", "reports": reports, "period": "24h", "noise": noise, "horizon": "30d"}
    return protocol | {"privacy": declared}


class CrashError(Exception):
    """Ends a simulated process."""


class Unsynced(sqlite3.Connection):
    """A connection that does not wait for the disk, which survives kills but not power failures."""

    def execute(self, statement, *values):
        return super().execute(statement.replace("EXTRA", "OFF"), *values)


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch):
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *given, **more: connect(*given, **{"factory": Unsynced} | more)
    )


class Crashing(Unsynced):
    """A connection whose process can crash before or after a statement; a close without a commit rolls back."""

    step = 10**9

    def execute(self, statement, *values):
        Crashing.step -= 1
        if Crashing.step == 0:
            raise CrashError
        found = super().execute(statement, *values)
        Crashing.step -= 1
        if Crashing.step == 0:
            raise CrashError
        return found


def crashing(source=SOURCE):
    """The module with connections that crash."""
    module = types.ModuleType("ldp.budget")
    exec(compile(source, "budget.py", "exec"), module.__dict__)  # the product's source
    module.sqlite3 = types.SimpleNamespace(
        connect=lambda *given, **more: sqlite3.connect(*given, factory=Crashing, **more),
        Connection=Crashing,
        DatabaseError=sqlite3.DatabaseError,
        Error=sqlite3.Error,
    )
    return module


class Device:
    """A device with jumps of the clock and crashes, and a separate record of its reports."""

    def __init__(self, module, path, rng, reports):
        self.module, self.path, self.rng = module, path, rng
        self.privacy = Declaration("device", reports, "24h", "memoised", "30d")
        self.now, self.newest = 20_000 * DAY + rng.random() * DAY, 0.0
        self.sent, self.lost, self.noise, self.faults = Counter(), Counter(), {}, []

    def attempt(self):
        """One report, in a new process that may crash at any step."""
        Crashing.step = self.rng.choice([10**9, 10**9, self.rng.randrange(1, 24)])
        value, before = self.rng.randrange(3), self.recorded() if Crashing.step < 10**9 else []
        try:
            book = self.module.Budget(self.path, "aabbccdd", self.privacy, lambda: self.now)
            noise = book.spend_memoised(value, lambda value: bytes([value, self.rng.randrange(256)]))
        except CrashError:
            if self.recorded() != before:
                self.newest = max(self.newest, self.now)
                self.lost[self.period] += 1
        except self.module.Spent as error:
            if error.until.timestamp() != (self.period + 1) * DAY:
                self.faults.append("another end of the period")
            if self.sent[self.period] + self.lost[self.period] < self.privacy.reports:
                self.faults.append("refuses a report that is left")
        else:
            self.newest = max(self.newest, self.now)
            if self.noise.setdefault(value, noise) != noise or noise[0] != value:
                self.faults.append("forgets noise")
            self.sent[self.period] += 1
        if self.sent[self.period] + self.lost[self.period] > self.privacy.reports:
            self.faults.append("over budget")

    def recorded(self):
        """The rows on disk, which a crash leaves as they were or as they are after the report."""
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(self.path)) as file:
            named = file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'spent'").fetchone()[0]
            return file.execute("SELECT * FROM spent").fetchall() if named else []

    @property
    def period(self):
        """The newest period that the device has seen."""
        return int(self.newest // DAY)

    def live(self, days):
        for _ in range(days):
            for _ in range(self.privacy.reports + 1):
                self.attempt()
                self.now += self.rng.random() * DAY / 4
            jump = self.rng.random()
            if jump < 0.15:
                self.now += (self.rng.random() - 0.5) * 6 * DAY
            self.now += self.rng.random() * DAY / 4
        return self


def population(users, module, folder, days=30):
    devices = []
    for user in range(users):
        path = folder / f"{user}.sqlite"
        devices.append(Device(module, path, random.Random(user), 1 + user % 3).live(days))
        with suppress(FileNotFoundError):
            path.unlink()
    return devices


def faults(devices):
    return Counter(fault for device in devices for fault in device.faults)


def test_no_device_of_60_is_over_budget_in_30_days(tmp_path):
    """5,400 seeded attempts: a fault in 0.3 % of them would be missed with probability 1e-7."""
    devices = population(60, crashing(), tmp_path)
    assert faults(devices) == {}
    sent = sum(sum(device.sent.values()) for device in devices)
    lost = sum(sum(device.lost.values()) for device in devices)
    assert sent > 900 and lost > 30, (sent, lost)


@pytest.mark.long
def test_no_device_of_10_000_is_over_budget_in_30_days(tmp_path):
    assert faults(population(10_000, crashing(), tmp_path)) == {}


MUTANTS = {
    "forgets the count": ("reports + 1))", "1))"),
    "forgets the period": ("if found is not None and found[0] >= now:", "if False:"),
    "forgets to commit": (
        'yield file\n            file.execute("COMMIT")',
        'yield file\n            file.execute("ROLLBACK" if [*file.execute("SELECT * FROM spent")] else "COMMIT")',
    ),
    "forgets the noise": ("if found is None else found[0]", ""),
    "commits before it counts": (
        "            self._record(file)\n            found",
        '            file.execute("COMMIT")\n            file.execute("BEGIN")\n            found',
    ),
    "doubles the budget": ("reports >= self._privacy.reports", "reports >= 2 * self._privacy.reports"),
    "one too many": ("reports >= self._privacy.reports", "reports > self._privacy.reports"),
    "counts twice": ("reports + 1))", "reports + 2))"),
    "a clock that goes back opens a period": ("found[0] >= now", "found[0] == now"),
    "an hour early": ("self._clock() // length", "(self._clock() + 3600) // length"),
    "a period too short": (
        "length = self._privacy.period_seconds",
        "length = self._privacy.period_seconds - 60",
    ),
    "another document's count": ('WHERE document = ?"', 'WHERE document <> ?"'),
    "another value's noise": ("WHERE document = ? AND value = ?", "WHERE document = ? AND value >= ?"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_faulty_store_is_detected(name, tmp_path):
    before, after = MUTANTS[name]
    assert SOURCE.count(before) >= 1
    assert faults(population(20, crashing(SOURCE.replace(before, after)), tmp_path))


def test_each_transaction_waits_for_the_disk(tmp_path, monkeypatch):
    statements = []

    class Noting(sqlite3.Connection):
        def execute(self, statement, *values):
            statements.append(statement)
            return super().execute(statement, *values)

    there = budget.Budget(
        tmp_path / "store", "9f86d081", Declaration("device", 1, "24h", "fresh", "30d"), float
    )
    monkeypatch.setattr(budget.sqlite3, "connect", Noting)
    there.spend()
    assert statements[:2] == ["PRAGMA synchronous = EXTRA", "BEGIN IMMEDIATE"]


def test_errors_of_a_damaged_store_name_its_path(tmp_path):
    path = tmp_path / "budget.sqlite"
    privacy = Declaration("device", 1, "24h", "fresh", "30d")
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(
        sqlite3.DatabaseError, match=f"{path}: file is not a database; to report again, delete"
    ):
        budget.Budget(path, "9f86d081", privacy, lambda: 0.0)
    path.unlink()
    there = budget.Budget(path, "9f86d081", privacy, lambda: 0.0)
    with closing(sqlite3.connect(path)) as file:
        file.execute("DROP TABLE spent")
    with pytest.raises(sqlite3.OperationalError, match=f"{path}: no such table: spent$"):
        there.spend()


CHILD = """
import json, os, signal, sqlite3, sys
from ldp import budget
from ldp.client import Client
path, step, times, document = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4]

def count():
    global step
    step -= 1
    if step == 0:
        os.kill(os.getpid(), signal.SIGKILL)

class Killed(sqlite3.Connection):
    def execute(self, statement, *given):
        count()
        found = super().execute(statement.replace("EXTRA", "OFF"), *given)
        count()
        return found

connect = sqlite3.connect
budget.sqlite3.connect = lambda *given, **more: connect(*given, factory=Killed, **more)
client = Client(json.loads(document), store=path, clock=lambda: 0.0)
for _ in range(times):
    try:
        frame = client.report(7)
    except budget.Spent:
        print("spent", flush=True)
    else:
        count()
        print(frame.hex(), flush=True)
"""


def child(path, step, times, made):
    command = [sys.executable, "-c", CHILD, str(path), str(step), str(times), json.dumps(made)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def output(process):
    out, _ = process.communicate(timeout=60)
    return out.split(), process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["fresh", "memoised"])
def test_a_kill_between_any_two_steps_loses_at_most_a_report(noise, tmp_path):
    made, steps = document(noise, 2, GRR), 0
    while True:
        steps += 1
        path = tmp_path / f"{steps}.sqlite"
        sent, code = output(child(path, steps, 1, made))
        killed = not sent
        client = Client(made, store=path, clock=lambda: 0.0)
        with pytest.raises(budget.Spent):
            for _ in range(3):
                sent.append(client.report(7).hex())
        assert 1 <= len(sent) <= 2
        if noise == "memoised":
            assert len(set(sent)) == 1
        if code == 0:
            break
        assert (code, killed) == (-signal.SIGKILL, True)
    assert steps > (24 if noise == "memoised" else 16)


@pytest.mark.slow
def test_two_processes_share_a_budget(tmp_path):
    made = document("memoised", 20, GRR)
    processes = [child(tmp_path / "store", 0, 15, made) for _ in range(2)]
    frames = [line for process in processes for line in output(process)[0]]
    assert Counter(line == "spent" for line in frames) == {False: 20, True: 10}
    assert len({line for line in frames if line != "spent"}) == 1


def test_a_client_refuses_until_the_period_ends(tmp_path):
    now = 5 * DAY + 7
    client = Client(document(reports=2), store=tmp_path / "store", clock=lambda: now)
    assert len([client.report(value) for value in (0, 2)]) == 2
    with pytest.raises(budget.Spent, match="the next period begins at 1970-01-07T00:00:00") as refused:
        client.report(1)
    assert refused.value.until == datetime(1970, 1, 7, tzinfo=UTC)
    now = 2 * DAY
    with pytest.raises(budget.Spent, match="1970-01-07"):
        client.report(1)
    now = 6 * DAY
    client.report(1)
    with pytest.raises(ValueError, match="outside 0 to 2"):
        client.report(3)  # a wrong value spends nothing
    client.report(1)
    assert Path(tmp_path / "store").stat().st_mode & 0o777 == 0o600


def test_each_document_has_a_separate_budget(tmp_path):
    for made in (
        document(),
        document("memoised"),
        document(protocol={"protocol": "oue", "epsilon": "1/1", "domain_size": 3}),
    ):
        client = Client(made, store=tmp_path / "store")
        client.report(0)
        with pytest.raises(budget.Spent):
            Client(made, store=tmp_path / "store").report(0)


def test_a_client_without_a_store_warns_once(recwarn):
    with pytest.warns(UserWarning, match="the client has no store"):
        client = Client(document())
    client.report(1)
    Client({"protocol": "grr", "epsilon": "1/1", "domain_size": 3}).report(1)
    assert not recwarn.list
    with pytest.raises(ValueError, match="the document needs the key privacy"):
        Client({"protocol": "grr", "epsilon": "1/1", "domain_size": 3}, store="never")
    assert not Path("never").exists()


@pytest.mark.parametrize("protocol", ["grr", "olh", "subset", "oue", "hadamard", "pgr"])
def test_memoised_reports_of_a_value_are_equal(protocol, tmp_path):
    made = document("memoised", 1000, ldp.Stream("s", ldp.oracle(protocol, "1", domain_size=40)).document())
    clients = [Client(made, store=tmp_path / "store") for _ in range(2)]
    frames = {value: {client.report(value) for client in clients for _ in range(5)} for value in range(30)}
    assert {len(each) for each in frames.values()} == {1}
    assert len(set.union(*frames.values())) > 1


@pytest.mark.parametrize(("p", "q"), [("3/4", "1/2"), ("1", "0"), ("1", "1/2"), ("1/2", "0")])
def test_rappor_stores_the_permanent_response(p, q):
    """400 draws of 64 bits, each with the false-alarm risk 10⁻⁹."""
    rappor, runs = RAPPOR("1/2", p, q, domain_size=64), 400
    drawn = [rappor.memoise(3) for _ in range(runs)]
    permanent = np.array([np.unpackbits(np.frombuffer(each, np.uint8), bitorder="little") for each in drawn])
    sent = np.array(
        [np.unpackbits(np.frombuffer(rappor.recall(each), np.uint8), bitorder="little") for each in drawn]
    )
    own = np.zeros(permanent.shape, bool)
    own[:, 3] = True
    for bits, chance in ((permanent[own], 0.75), (permanent[~own], 0.25)):
        _expect(bits, chance)
    _expect(sent[permanent == 1], float(Fraction(p)))
    _expect(sent[permanent == 0], float(Fraction(q)))


def _expect(bits, chance):
    ones = int(bits.sum())
    assert min(binom.cdf(ones, bits.size, chance), binom.sf(ones - 1, bits.size, chance)) > 1e-9
