"""A hundred thousand values, shown: a real Chromium, a real worker on a real Kafka and a real Redis."""

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.chromium import page_of
from tests.integration.harness import World

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("patient")]

D = 100_000
ROWS = 25
LONG = """window.long = []; new PerformanceObserver(list => long.push(...list.getEntries().map(e => e.duration)))
    .observe({ type: "longtask", buffered: true })"""
ENDS = "nodes => nodes.map(node => { const { left, right } = node.getBoundingClientRect(); return [left, right]; })"


def assert_drawn(page, snapshot, labels):
    """Asserts that the first values are those that another reader finds, their bars as long as their frequencies."""
    base = snapshot.bodies["base"]
    order = np.argsort(-base.frequencies, kind="stable")[:ROWS]
    expect(page.locator("#sequence")).to_have_text(f"#{snapshot.sequence}")
    expect(page.locator("#values tbody .label bdi")).to_have_text([labels[value] for value in order])
    drawn, said = page.locator("#values tbody .bar"), base.frequencies[order]
    left, right = np.array(drawn.evaluate_all(ENDS)).T
    assert np.ptp(left) < 0.1
    assert np.abs((right - left) / (right - left).max() - said / said.max()).max() < 0.005
    numbers = [float(text) for text in page.locator("#values tbody .number").all_inner_texts()]
    assert np.abs(np.array(numbers) / 100 - said).max() < snapshot.std_error / 10


@pytest.mark.long
def test_a_worker_with_100_000_values_shows_the_most_frequent_and_finds_any(
    kafka, redis_url, tmp_path, chromium
):
    labels = [f"word {value:06}" for value in range(D)]
    (tmp_path / "words.txt").write_text("\n".join(labels), encoding="utf-8")
    stream = {"protocol": "pgr", "epsilon": "4", "domain_size": D, "labels_file": "words.txt"}
    with (
        World(kafka, redis_url, tmp_path, partitions=2, **stream) as world,
        page_of(chromium) as page,
    ):
        world.send(2, reports=2000)
        (worker,) = world.start()
        last = world.covered()
        page.emulate_media(reduced_motion="reduce")
        page.add_init_script(LONG)
        page.goto(f"http://127.0.0.1:{worker.port()}/")
        assert_drawn(page, last, labels)

        page.locator("#find-text").fill("077777")
        expect(page.locator("#values tbody bdi")).to_have_text(["word 077777"])
        page.locator("#find-text").fill("")
        world.send(1, reports=1000)
        last = world.covered()
        expect(page.locator("#reports")).to_have_text("5,000")
        assert_drawn(page, last, labels)
        # a page that is slow is so each time it draws; one long task may be a stall of this machine
        assert sum(milliseconds >= 1000 for milliseconds in page.evaluate("long")) < 2
