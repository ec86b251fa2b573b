"""The page in Chromium: values, live updates, hostile labels, keyboard."""

import math
import re

import numpy as np
import pytest
from playwright.sync_api import expect

import ldp
from ldp.consistency import METHODS
from ldp.consistency.together import by_method
from ldp.privacy.amplification import ADVERSARIES
from tests.support import axe
from tests.support.chromium import page_of
from tests.support.harness import World, until
from tests.support.harness.standin import PAGE, Shown, Standin

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("patient")]

HOUR = 3_600_000
COLOURS = ["red", "green", "blue", "mauve", "beige"]
BEGIN = 1_795_327_200_000  # 2026-11-22 06:00 UTC
DATES = {"start": "2026-11-22T06:00:00.000Z", "end": "2026-11-22T12:00:00Z"}
SIX = {"window": {"name": "6h", "final": True} | DATES}


def collected(n=10_000, d=5, labels=COLOURS, seed=1, **said):
    """Returns a snapshot of an OLH estimate by every method."""
    oracle = ldp.OLH("1", domain_size=d)
    truth = np.random.default_rng(seed).multinomial(n, np.arange(d, 0, -1) / (d * (d + 1) / 2))
    counts = np.random.default_rng(seed).binomial(truth, float(oracle.p))
    counts += np.random.default_rng(seed + 1).binomial(n - truth, float(oracle.q))
    estimate = oracle.estimate(counts, n)
    ends = zip(("low", "high"), estimate.interval(), strict=True)
    anytime = zip(("anytime_low", "anytime_high"), estimate.anytime_interval(0.95), strict=True)
    vectors = {name: vector.tolist() for name, vector in [*ends, *anytime]} | {
        "poisoning_tolerance": [123] * (d - 1) + [None]
    }
    methods = {name: vector.tolist() for name, vector in by_method(estimate, list(METHODS)).items()}
    error = float(estimate.std_error().min())
    warm = {name: sum(vector[:2]) for name, vector in methods.items()}
    query = {"name": "warm", "values": [0, 1], "size": 2, "answers": warm, "standard_error": error}
    query |= {"low": warm["base"] - 0.02, "high": warm["base"] + 0.02, "poisoning_tolerance": 77}
    query |= {"recommended": {"method": "norm-sub", "sequence": 1}}
    order = np.argsort(-estimate.frequencies)[:3].tolist()
    top = {
        "name": "first three",
        "values": order,
        "labels": [(labels or list(map(str, range(d))))[v] for v in order],
    }
    top |= {"answers": {m: [vector[v] for v in order] for m, vector in methods.items()}, "recommended": None}
    top |= {"low": [vectors["low"][v] for v in order], "high": [vectors["high"][v] for v in order]}
    return Shown(methods, labels, vectors, {"reports": n, "standard_error": error} | said, [query], [top])


@pytest.fixture
def standin():
    with Standin("colours") as server:
        yield server


def percent(fraction, error):
    """Formats a fraction with two significant digits of its error."""
    said = f"{100 * fraction:.{max(0, 1 - math.floor(math.log10(100 * error)))}f}"
    return said.replace("-", "−") if float(said) else said.lstrip("-")


def share(fraction, error):
    """Formats a fraction like `percent`, with the unit."""
    return f"{percent(fraction, error)}\u00a0%"


def between(low, high, error):
    """Formats an interval."""
    return f"{percent(low, error)}\u00a0… {share(high, error)}"


def cells(page, table, column):
    """Returns the texts of a table's column."""
    return page.locator(f"#{table} tbody .{column}").all_inner_texts()


def choose(page, group, name):
    page.locator(f"#{group}").get_by_role("radio", name=name, exact=True).check()


def open_at(page, standin, **place):
    page.goto(standin.address + "#" + "&".join(f"{key}={value}" for key, value in place.items()))


def test_the_page_shows_the_values_of_each_method(standin, chromium):
    shown = collected()
    standin.snapshots["colours", "all", ""] = shown
    error, base = shown.said["standard_error"], np.array(shown.methods["base"])
    order = np.argsort(-base)
    with page_of(chromium) as page:
        open_at(page, standin)
        expect(page.locator("#reports")).to_have_text("10,000")
        expect(page.locator("#method-name")).to_have_text("norm-sub")  # the default
        page.locator("#method").click()
        assert page.locator("#methods").get_by_role("radio").count() == len(METHODS)
        ends = shown.ends
        ranges = [between(ends["low"][v], ends["high"][v], error) for v in order]
        anytime = [between(ends["anytime_low"][v], ends["anytime_high"][v], error) for v in order]
        for method, frequencies in shown.methods.items():
            choose(page, "methods", method)
            expect(page.locator("#values tbody .number")).to_have_text(
                [share(frequencies[v], error) for v in order]
            )
            # two digits of the standard error: 190 of 10,000 reports, in tens
            number = [f"{round(frequencies[v] * 1000) * 10:,}".replace("-", "−") for v in order]
            assert cells(page, "values", "users") == number
            assert cells(page, "values", "label") == [COLOURS[v] for v in order]
            assert cells(page, "values", "interval") == ranges
            whose = "Pointwise 95 %" if method == "base" else "Pointwise 95 % of Base"
            together = f"{whose}, all together"
            assert page.locator("thead .interval").all_inner_texts() == [whose, whose, together]
            assert page.locator("#legend-whisker").inner_text() == f"{whose}: share among reports"
            assert page.locator("#queries tbody .number").inner_text() == share(sum(frequencies[:2]), error)
            assert page.locator("#tops .number").all_inner_texts()[1:] == [
                share(frequencies[v], error) for v in order[:3]
            ]
            assert f"method={method}" in page.url or method == "norm-sub"
        assert cells(page, "values", "tolerance") == ["123" if v < 4 else "—" for v in order]
        assert page.locator("#queries .recommended").all_inner_texts() == ["Recommended", "norm-sub"]
        choose(page, "intervals", "anytime-valid 95 %")
        assert cells(page, "values", "interval") == anytime
        choose(page, "views", "All methods")
        sides = page.locator("#sides tbody tr").all()
        for row, value in zip(sides, order, strict=True):
            assert row.locator(".figure").all_inner_texts() == [
                percent(frequencies[value], error) for frequencies in shown.methods.values()
            ]


@pytest.mark.long
def test_the_page_shows_published_values_only(standin, chromium):
    whole = collected()
    answers = {"norm-sub": 0.5, "power": None}
    query = {"name": "many", "values": [3, 1], "size": 40, "answers": answers, "recommended": None}
    methods = {method: whole.methods[method] for method in ("norm-sub", "power")}
    standin.snapshots["colours", "all", ""] = Shown(methods, None, {}, whole.said, [query])
    with page_of(chromium) as page:
        open_at(page, standin)
        expect(page.locator("#values thead th")).to_have_text(
            ["#", "Value", re.compile("^0 %"), "Estimate", "Estimated users"]
        )
        order = np.argsort(-np.array(methods["norm-sub"]), kind="stable")
        assert cells(page, "values", "label") == [str(value) for value in order]
        assert page.locator("#values .whisker:visible").count() == 0
        assert page.locator("#intervals").is_hidden()
        for absent in ("#interval-means", "#legend-interval", "#covered"):
            assert page.locator(absent).is_hidden()
        assert page.locator("#queries .of bdi").all_inner_texts() == ["3", "1", "and 38 more"]
        assert page.locator("#questions-means").inner_text().startswith("No method is recommended")
        assert page.locator("#queries tbody .number").inner_text() == share(0.5, whole.said["standard_error"])
        page.locator("#method").click()
        choose(page, "methods", "power")
        expect(page.locator("#queries tbody .number")).to_have_text("—")
        assert page.locator("#queries .bar:visible").count() == 0


@pytest.mark.long
def test_bars_and_whiskers_are_to_scale(standin, chromium):
    shown = standin.snapshots["colours", "all", ""] = collected()
    order = np.argsort(-np.array(shown.methods["base"]))
    with page_of(chromium) as page:
        page.emulate_media(reduced_motion="reduce")
        open_at(page, standin, method="base")
        expect(page.locator("#values tbody tr")).to_have_count(5)
        places = "nodes => nodes.map(node => { const r = node.getBoundingClientRect(); return [r.left, r.right]; })"
        bars = page.locator("#values .bar").evaluate_all(places)
        whiskers = page.locator("#values .whisker").evaluate_all(places)
        base = [shown.methods["base"][v] for v in order]
        fractions = [0.0, *base, *(shown.ends[end][v] for end in ("low", "high") for v in order)]
        pixels = [bars[0][0], *(right for _, right in bars), *(p[end] for end in (0, 1) for p in whiskers)]
        slope, begin = np.polyfit(fractions, pixels, 1)
        assert slope > 100
        assert np.abs(np.array(fractions) * slope + begin - pixels).max() < 0.5
        choose(page, "views", "All methods")
        drawn = page.locator("#sides .bar").evaluate_all("nodes => nodes.map(node => node.offsetWidth)")
        said = [shown.methods[method][v] for v in order for method in METHODS]
        assert np.abs(np.array(drawn) - np.array(said) * max(drawn) / max(said)).max() < 1.5


def test_live_updates_keep_focus_and_scroll_position(standin, chromium):
    standin.snapshots["colours", "all", ""] = collected(d=200, labels=None)
    with page_of(chromium) as page:
        open_at(page, standin, method="norm-sub")
        expect(page.locator("#values tbody tr")).to_have_count(25)
        expect(page.locator("#connection")).to_have_text("Live")
        page.evaluate("window.same = true")
        button = page.get_by_role("button", name="Next")
        button.click()
        expect(page.locator("#range")).to_have_text("26 – 50 of 200")
        before = page.evaluate("scrollY")
        assert before > 0
        for sequence in (2, 3):
            news = collected(
                n=20_000 * sequence,
                d=200,
                labels=None,
                seed=sequence,
                sequence=sequence,
                snapshot=f"{sequence:032x}",
            )
            standin.publish(news, "colours")
            expect(page.locator("#reports")).to_have_text(f"{20_000 * sequence:,}")
        expect(button).to_be_focused()
        assert page.evaluate("[window.same, scrollY]") == [True, before]
        assert (
            page.locator("#announcement").inner_text().startswith("10,000")
        )  # it was reported just now, so it is not repeated yet
        standin.streams[0]["state"] = "stopped"
        standin.renew()
        expect(page.locator("#streams .state")).to_have_text("stopped")
        expect(page.locator("#alarm")).to_contain_text("This worker reports “stopped”. These values may")
        standin.streams[0]["state"] = "serving"
        standin.renew()
        expect(page.locator("#alarm")).to_be_hidden()


def test_the_age_of_a_snapshot_is_by_the_clock_of_the_worker(standin, chromium):
    standin.now = BEGIN / 1000 + 100
    with page_of(chromium) as page:
        page.clock.install(time=BEGIN / 1000 - 3600)  # the browser's clock is an hour late
        page.clock.pause_at(BEGIN / 1000 - 3590)
        # Date is rounded down and up to a second old: the worker's time is 100 to 102 s
        for published, shown in ((101, "0 s ago"), (-19, "2 min ago"), (-7100, "2 h ago"), (97, "4 s ago")):
            said = {"published": BEGIN + 1000 * published, "snapshot": f"{published + 9000:032x}"}
            standin.snapshots["colours", "all", ""] = collected(**said)
            page.goto("about:blank")
            open_at(page, standin)
            expect(page.locator("#age")).to_have_text(shown)
        page.clock.resume()
        expect(page.locator("#age")).not_to_have_text("4 s ago")
        ahead = collected(published=BEGIN + 1000 * 8000, snapshot="a" * 32)
        standin.snapshots["colours", "all", ""] = ahead
        page.reload()
        expect(page.locator("#age")).to_contain_text("s ahead of this worker’s clock")
        del ahead.said["published"]  # as another program may write
        page.reload()
        expect(page.locator("#age")).to_have_text("—")


def test_a_late_snapshot_is_marked_while_reports_arrive(standin, chromium):
    standin.snapshots["colours", "all", ""] = collected(published=BEGIN)
    (stream,) = standin.streams
    alarm = "although reports arrive and the interval is 5 s. These values are outdated."
    with page_of(chromium) as page:
        page.clock.install(time=BEGIN / 1000 + 60)
        page.clock.pause_at(BEGIN / 1000 + 70)

        def pass_by(seconds, **said):
            """Sends the streams every 10 s, with other facts."""
            for _ in range(0, seconds, 10):
                page.clock.run_for(10_000)
                stream.update(said, lag=stream["lag"] + 1)
                standin.renew()
                expect(page.locator("#counting")).to_contain_text(f"Lag in offsets{stream['lag']}")

        open_at(page, standin)
        expect(page.locator("#connection")).to_have_text("Live")
        pass_by(30)
        expect(page.locator("#alarm")).to_be_hidden()  # 3 intervals of 5 s and 20 s are not over
        pass_by(10)
        expect(page.locator("#alarm")).to_contain_text(alarm)
        pass_by(10, published=BEGIN + 100_000)
        expect(page.locator("#alarm")).to_be_hidden()
        pass_by(60, rate=0.0)  # without reports, there is no new snapshot
        expect(page.locator("#alarm")).to_be_hidden()
        pass_by(60, rate=0.5, every_seconds=None)  # with snapshots.fewest_new
        expect(page.locator("#alarm")).to_be_hidden()
        pass_by(10, every_seconds=5.0)
        expect(page.locator("#alarm")).to_contain_text(alarm)
        page.clock.run_for(30_000)  # without events, the page connects again, and waits again
        expect(page.locator("#alarm")).to_be_hidden()
        assert listened(standin) > 1


def test_the_privacy_loss_to_readers_of_snapshots(standin, chromium):
    standin.snapshots["colours", "all", ""] = collected()
    (stream,) = standin.streams
    with page_of(chromium) as page:
        page.set_viewport_size({"width": 360, "height": 900})
        open_at(page, standin)
        expect(page.locator("#epsilon")).to_have_text("1")
        expect(page.locator("#readers")).to_be_hidden()  # without snapshots.fewest_new
        stream["privacy_loss"] = {"fewest_new": 10_000, "operator": 1.0, "readers": 0.046, "delta": 1e-8}
        standin.renew()
        expect(page.locator("#readers")).to_contain_text("a report has ε ≤ 0.046 with δ = 1e-8")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        title = page.locator("#readers a").get_attribute("title")
        for fact in ADVERSARIES["snapshots"].split("; "):
            assert fact.removeprefix("and ") in title, fact
        for shown in ("infinite", 0.046, None):  # null with memoised noise
            stream["privacy_loss"] |= {"readers": shown}
            standin.renew()
            expect(page.locator("#readers")).to_be_visible(visible=shown == 0.046)
        page.locator("#readers a").evaluate("link => link.click()")
        expect(page.locator("dt#readers")).to_be_in_viewport()


def test_the_interval_covers_reports_or_the_population(standin, chromium):
    standin.snapshots["colours", "all", ""] = collected()
    with page_of(chromium) as page:
        open_at(page, standin)
        expect(page.locator("#interval-means")).to_contain_text(
            "covers the share among the 10,000 reports with"
        )
        asked = len(standin.asked)
        choose(page, "covered", "in the population")
        expect(page.locator("#interval-means")).to_contain_text(
            "covers the share in the population, if the users"
        )
        assert (
            page.locator("#legend-whisker").inner_text() == "Pointwise 95 % of Base: share in the population"
        )
        assert [path for path in standin.asked[asked:] if "excerpt" in path and "of=population" in path]
        assert page.url.endswith("of=population")
        page.reload()
        expect(page.locator("#covered").get_by_role("radio", name="in the population")).to_be_checked()


def test_the_page_links_the_data_of_the_view(standin, chromium):
    with_windows(standin)
    links = {
        "": ("values.csv?method=norm-sub&method=base", "snapshot?method=norm-sub&method=base"),
        "method=base&of=population": ("values.csv?method=base&of=population", "snapshot?method=base"),
        "view=all": ("values.csv", "snapshot"),
        f"window=6h&start={BEGIN}&method=base": tuple(
            f"{form}?window=6h&start={BEGIN}&method=base" for form in ("values.csv", "snapshot")
        ),
    }
    with page_of(chromium) as page:
        for place, found in links.items():
            page.goto("about:blank")
            page.goto(f"{standin.address}#stream=colours&{place}")
            expect(page.locator("#csv")).to_be_visible()
            hrefs = tuple(page.locator(link).get_attribute("href") for link in ("#csv", "#json"))
            assert hrefs == tuple(f"streams/colours/{form}" for form in found), place
        linked = [link.get_attribute("href") for link in page.locator("footer a").all()]
        assert linked == ["page/help.html", "streams", "metrics", "readyz"]
        page.get_by_role("link", name="Documentation").click()
        expect(page.get_by_role("heading", name="Meaning of the numbers")).to_be_visible()
        assert axe.violations(page) == {}
        page.get_by_role("link", name="Back to the streams").click()
        expect(page.locator("#reports")).to_have_text("10,000")


def test_nothing_is_cut_off_on_a_phone(standin, chromium):
    with_windows(standin)
    with page_of(chromium) as page:
        page.set_viewport_size({"width": 360, "height": 740})
        open_at(page, standin)
        page.locator("#method").click()
        outside = """nodes => nodes.filter(node => node.checkVisibility()).filter(node => {
            const { left, right } = node.getBoundingClientRect();
            return left < 0 || right > innerWidth || node.scrollWidth > node.clientWidth + 1;
        }).map(node => node.outerHTML)"""
        for kind in (
            ".choice label",
            "#methods label",
            "#method",
            "#legend",
            "#values td",
            ".links",
            "form label",
        ):
            assert page.locator(kind).count()
            assert page.locator(kind).evaluate_all(outside) == [], kind
        room = """select => {
            const context = document.createElement("canvas").getContext("2d");
            context.font = getComputedStyle(select).font;
            const widest = Math.max(...[...select.options].map(({ text }) => context.measureText(text).width));
            return select.clientWidth - widest;
        }"""
        assert page.locator("#sort").evaluate(room) > 40  # padding and arrow


@pytest.mark.long
def test_the_page_reconnects_after_a_lost_connection(chromium):
    with page_of(chromium) as page:
        with Standin("colours") as first:
            first.snapshots["colours", "all", ""] = collected()
            open_at(page, first)
            expect(page.locator("#connection")).to_have_text("Live")
            expect(page.locator("#reports")).to_have_text("10,000")  # the page requests it after that
        expect(page.locator("#connection")).to_contain_text("Connection lost at")
        expect(page.locator("#reports")).to_have_text("10,000")
        second = Standin("colours", port=first.port)
        second.refusing = True
        with second:
            second.snapshots["colours", "all", ""] = collected(n=20_000, snapshot="1" * 32)
            expect(page.locator("#connection")).to_have_text("Polling every few seconds")
            expect(page.locator("#reports")).to_have_text("20,000")
            second.refusing = False
            expect(page.locator("#connection")).to_have_text("Live")


def listened(standin):
    """Returns the number of requests for event streams."""
    return sum(path.startswith("/events") for path in standin.asked)


@pytest.mark.long
def test_the_page_reconnects_to_a_silent_worker(standin, chromium):
    standin.snapshots["colours", "all", ""] = collected()
    with page_of(chromium) as page:
        page.clock.install()
        open_at(page, standin, stream="colours")
        expect(page.locator("#reports")).to_have_text("10,000")
        assert listened(standin) == 1
        for lag in (1, 2, 3):  # every event arrives, of any type
            page.clock.fast_forward(20_000)
            standin.alive()
            standin.streams[0]["lag"] = lag
            standin.renew()
            expect(page.locator("#counting")).to_contain_text(f"Lag in offsets{lag}")
        assert listened(standin) == 1
        standin.refusing = True
        page.clock.fast_forward(30_000)
        expect(page.locator("#connection")).to_have_text("Polling every few seconds")
        assert listened(standin) > 1


@pytest.mark.long
def test_the_page_keeps_its_values_while_the_topic_is_unreadable(standin, chromium):
    standin.snapshots["colours", "all", ""] = collected()
    standin.streams.append(standin.stream("shapes"))
    standin.snapshots["shapes", "all", ""] = collected(n=30_000, snapshot="3" * 32)
    with page_of(chromium) as page:
        open_at(page, standin, stream="colours")
        expect(page.locator("#reports")).to_have_text("10,000")
        standin.unread = True
        standin.publish(collected(n=20_000, sequence=2, snapshot="2" * 32), "colours")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("The snapshot cannot be read now. These values may be outdated.")
        expect(page.locator("#reports")).to_have_text("10,000")
        asked = len(standin.asked)
        page.locator("#find-text").fill("re")
        until(lambda: any("find=re" in path for path in standin.asked[asked:]), "it is asked for")
        page.wait_for_timeout(200)  # the answer has come
        expect(page.locator("#find-text")).to_be_focused()
        expect(page.locator("#reports")).to_be_visible()
        page.get_by_role("link", name="shapes").click()
        # the page shows no numbers of another stream
        expect(page.locator("#title")).to_have_text("shapes")
        expect(page.locator("#shown")).to_be_hidden()
        expect(alert).to_contain_text("The worker has not read the snapshots yet.")
        standin.unread = False
        expect(page.locator("#reports")).to_have_text("30,000")
        expect(alert).to_be_hidden()


HOSTILE = [
    "<img src=/stolen onerror=fetch('/stolen')>",
    "</td></table><script>fetch('/stolen')</script>",
    "a\x00b\x07c\x7f\x1b[31m",
    "\u202egnp.exe\u2066",
    " two  ends ",
    "",
    "long" * 1000,
    "javascript:fetch('/stolen')",
    "{{7*7}}${7*7}",
    "\ud800 alone",
]


def test_hostile_labels_and_names_are_shown_as_text(chromium):
    name = "<b onclick=x>&amp;\u202e\x01/../?#%2F"
    with Standin(name) as standin, page_of(chromium) as page:
        standin.streams[0] |= {
            "rejected": {"<i>why": 3},
            "topic": "<u>t",
            "fingerprint": "<s>",
            "state": "<em>",
        }
        shown = collected(d=len(HOSTILE), labels=HOSTILE)
        shown.queries[0] |= {"name": "<img src=/stolen>", "labels": HOSTILE[:2]}
        standin.snapshots[name, "all", ""] = shown
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        open_at(page, standin, sort="value")
        expect(page.locator("#values tbody tr")).to_have_count(len(HOSTILE))
        labels = page.locator("#values tbody .label bdi").all_inner_texts()
        assert labels[:6] == [
            HOSTILE[0],
            HOSTILE[1],
            "a␀b␇c␡␛[31m",
            "⟨U+202E⟩gnp.exe⟨U+2066⟩",
            "␠two  ends␠",
            "(empty)",
        ]
        assert labels[6] == ("long" * 40) + "…"
        assert labels[7:] == [*HOSTILE[7:9], "� alone"]
        expect(page.locator("#title")).to_have_text("<b onclick=x>&amp;⟨U+202E⟩␁/../?#%2F")
        assert page.locator("#title").inner_html().startswith("&lt;b onclick")
        assert (
            page.locator("main img, main b[onclick], main script, main i, aside i, aside u, nav em").count()
            == 0
        )
        page.locator("#find-text").fill("<script>")
        expect(page.locator("#values tbody tr")).to_have_count(1)
        choose(page, "views", "All methods")
        expect(page.locator("#sides tbody bdi")).to_have_text([HOSTILE[1]])
        allowed = re.compile(
            r"/(|page/[a-z]+\.(js|css|svg)|streams(/[^/?]+/excerpt\?.*)?|events(\?.*)?|favicon.ico)$"
        )
        assert [path for path in standin.asked if not allowed.match(path)] == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def with_windows(standin):
    """Adds four windows of six hours, the last one provisional."""
    windows = [
        {
            "start": BEGIN + 6 * HOUR * i,
            "end": BEGIN + 6 * HOUR * (i + 1),
            "final": i < 3,
            "reports": 1000 * (i + 1),
            "complete": i != 1,
        }
        for i in range(4)
    ]
    standin.streams[0] |= {"windows": ["all", "6h"], "available": {"all": [None], "6h": windows}}
    standin.snapshots["colours", "all", ""] = collected()
    standin.snapshots["colours", "6h", ""] = collected(n=4000, **SIX)
    standin.snapshots["colours", "6h", str(BEGIN)] = collected(n=1000, **SIX)


def with_parts(standin):
    """Adds two documents and a segment; returns the names of a document and of the segment."""
    old, new, segment = "colours@9f86d081", "colours@8e9f39d0", "colours:DE"
    standin.streams[0] |= {
        "parts": [
            {"name": old, "document": "9f86d081", "reports": 4_000, "retired": True},
            {"name": new, "document": "8e9f39d0", "reports": 6_000, "retired": False},
            {"name": segment, "segment": "DE", "reports": 3_000},
        ],
        "hidden": 7_000,
    }
    documents = [
        {"fingerprint": "9f86d081", "reports": 4_000, "protocol": "grr", "epsilon": "1/2"},
        {"fingerprint": "8e9f39d0", "reports": 6_000, "protocol": "oue", "epsilon": "2"},
    ]
    whole = collected()
    ends = whole.ends | {"known": [10_000, 10_000, 4_000, 6_000, 0]}
    ends |= {name: [*ends[name][:4], None] for name in ("low", "high")}
    methods = {name: [*vector[:4], None] for name, vector in whole.methods.items()}
    several = {"documents": documents, "document": {}, "range": [0, 1]}
    queries = [query | {"recommended": None} for query in whole.queries]
    standin.snapshots["colours", "all", ""] = Population(
        methods, COLOURS, ends, whole.said | several, queries
    )
    standin.snapshots[old, "all", ""] = collected(n=4000)
    standin.snapshots[segment, "all", ""] = collected(n=3000)
    return old, segment


class Population(Shown):
    """A snapshot of several documents, whose last label is unknown."""

    def excerpt(self, asked):
        known = {name: vector[:-1] for name, vector in self.methods.items()}
        labels = self.labels[:-1]
        found = Shown(known, labels, self.ends, self.said, self.queries).excerpt(asked)
        methods = dict.fromkeys(self.methods)
        last = {name: vector[-1] for name, vector in self.ends.items()}
        found["values"].append(
            {"value": len(labels), "label": self.labels[-1], "frequencies": methods} | last
        )
        return found


def test_documents_and_segments_are_selected_like_streams(standin, chromium):
    old, segment = with_parts(standin)
    with page_of(chromium) as page:
        open_at(page, standin)
        expect(page.locator("#facts")).to_have_text("2 documents · 4 values")
        expect(page.locator("#epsilon")).to_have_text("2")
        widths = page.locator("#shares span").evaluate_all("spans => spans.map((span) => span.style.width)")
        assert widths == ["40%", "60%"]
        assert page.locator("#documents li").all_inner_texts() == [
            "All reports",
            "9f86d081 40.0\u00a0% · 4,000 reports · retired",
            "8e9f39d0 60.0\u00a0% · 6,000 reports",
        ]
        assert page.locator("#segments li").all_inner_texts() == ["DE 3,000 reports"]
        expect(page.locator("#parts-means")).to_have_text("7,000 reports are in no segment of this list.")
        assert cells(page, "values", "label")[-1] == "beige"
        assert cells(page, "values", "number")[-1] == "unknown"
        assert sorted(cells(page, "values", "known")) == sorted(["10,000", "10,000", "4,000", "6,000", "0"])
        expect(page.locator("#covered")).to_be_hidden()
        means = "No method is recommended for a stream of several documents."
        expect(page.locator("#questions-means")).to_have_text(means)
        assert axe.violations(page) == {}
        page.get_by_role("link", name="9f86d081").click()
        expect(page.locator("#reports")).to_have_text("4,000")
        assert page.url.endswith("#stream=colours%409f86d081")
        expect(page.locator("#title")).to_have_text(old)
        expect(page.locator("#documents [aria-current]")).to_have_text("9f86d081")
        expect(page.locator("#streams [aria-current]")).to_contain_text("colours")
        expect(page.locator("#values thead .known")).to_have_count(0)
        assert "streams/colours%409f86d081/values.csv" in page.locator("#csv").get_attribute("href")
        page.get_by_role("link", name="DE").click()
        expect(page.locator("#reports")).to_have_text("3,000")
        page.go_back()
        expect(page.locator("#reports")).to_have_text("4,000")
        open_at(page, standin, stream=segment)
        expect(page.locator("#reports")).to_have_text("3,000")


@pytest.mark.long
def test_late_and_withheld_reports_are_named(standin, chromium):
    with_windows(standin)
    standin.streams[0] |= {"windows": ["all", "6h", "late"], "privacy_loss": {}}
    standin.streams[0]["available"]["late"] = [None]
    times = {"window": {"name": "late", "start": None, "end": None, "final": False}}
    standin.snapshots["colours", "late", ""] = collected(n=30, **times)
    standin.snapshots["colours", "6h", ""] = collected(n=4000, withheld=7, **SIX)
    with page_of(chromium) as page:
        open_at(page, standin)
        choose(page, "window-names", "Windows of 6h")
        expect(page.locator("#reports-means")).to_contain_text(" 7 more reports are withheld")
        expect(page.locator("#complete")).to_contain_text(
            "Reports are withheld until there are enough of them"
        )
        expect(page.locator("#line-missing")).to_be_visible()
        choose(page, "window-names", "In no window")
        expect(page.locator("#reports")).to_have_text("30")
        expect(page.locator("#reports-means")).to_contain_text("In no window: late or undated reports")
        expect(page.locator("#line")).to_be_hidden()


@pytest.mark.long
def test_windows_form_a_timeline_with_history(standin, chromium):
    with_windows(standin)
    with page_of(chromium) as page:
        open_at(page, standin)
        choose(page, "window-names", "Windows of 6h")
        expect(page.locator("#reports")).to_have_text("4,000")
        line = page.locator("#strip")
        assert [radio.get_attribute("aria-label") for radio in line.get_by_role("radio").all()] == [
            "22 Nov 2026, 06:00 – 12:00 UTC, final, 1,000 reports",
            "22 Nov 2026, 12:00 – 18:00 UTC, final, incomplete, 2,000 reports",
            "22 Nov 2026, 18:00 – 24:00 UTC, final, 3,000 reports",
            "23 Nov 2026, 00:00 – 06:00 UTC, provisional, 4,000 reports",
            "Always the newest window",
        ]
        assert line.locator(".kind").all_inner_texts() == [
            "final",
            "final ▲",
            "final",
            "provisional",
            "follow",
        ]
        line.get_by_role("radio").first.check()
        expect(page.locator("#reports")).to_have_text("1,000")
        expect(page.locator("#reports-means")).to_contain_text("22 Nov 2026, 06:00 – 12:00 UTC, final")
        assert f"start={BEGIN}" in page.url
        page.reload()
        expect(page.locator("#reports")).to_have_text("1,000")
        standin.publish(collected(n=1007, snapshot="2" * 32, **SIX), "colours", "6h", str(BEGIN))
        expect(page.locator("#reports")).to_have_text("1,007")
        page.go_back()
        expect(page.locator("#reports")).to_have_text("4,000")
        page.go_forward()
        expect(page.locator("#reports")).to_have_text("1,007")
        page.get_by_role("link", name="Back to all time").click()
        expect(page.locator("#reports")).to_have_text("10,000")
        line.get_by_role("radio").first.wait_for(state="hidden")


@pytest.mark.long
def test_the_page_offers_the_newest_window_for_a_deleted_one(standin, chromium):
    with_windows(standin)
    with page_of(chromium) as page:
        open_at(page, standin, stream="colours", window="6h", start="5")
        expect(page.get_by_role("alert")).to_contain_text("This window is no longer on the topic.")
        expect(page.locator("#shown")).to_be_hidden()
        page.get_by_role("link", name="Newest window of 6h").click()
        expect(page.locator("#reports")).to_have_text("4,000")
        expect(page.locator("#connection")).to_have_text("Live")
        standin.remove("colours", "6h", "")  # while one looks at it
        expect(page.get_by_role("alert")).to_contain_text("There is no window of 6h yet.")
        standin.publish(collected(n=4000, **SIX), "colours", "6h")
        expect(page.locator("#reports")).to_have_text("4,000")
        expect(page.get_by_role("alert")).to_be_hidden()
        open_at(page, standin, stream="nobody")
        expect(page.get_by_role("alert")).to_contain_text("This worker serves no stream named nobody.")
        page.get_by_role("alert").get_by_role("link", name="colours").click()
        expect(page.locator("#reports")).to_have_text("10,000")


@pytest.mark.long
def test_the_page_works_with_a_keyboard(standin, chromium):
    with_windows(standin)
    with page_of(chromium) as page:
        open_at(page, standin)
        expect(page.locator("#values tbody tr")).to_have_count(5)
        focus = (
            "() => document.activeElement.id || document.activeElement.name || document.activeElement.text"
        )
        ring = (
            "() => getComputedStyle((e => e.closest('label:has([type=radio])') ?? e)(document.activeElement))"
        )
        passed = []
        for _ in range(8):
            page.keyboard.press("Tab")
            passed.append(page.evaluate(focus))
            assert page.evaluate(f"({ring})().outlineStyle") == "solid", passed
        assert passed[0] == "Skip to the values"
        assert passed[2:] == ["window-names", "find-text", "sort", "views", "intervals", "covered"]
        page.keyboard.press("Tab")
        assert page.evaluate(focus) == "method"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate(focus) == "methods"
        page.keyboard.press("ArrowRight")  # from norm-sub
        expect(page.locator("#method-name")).to_have_text("mle-apx")
        page.locator("#window-names").get_by_role("radio").first.focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#reports")).to_have_text("4,000")
        page.keyboard.press("Tab")
        assert page.evaluate(focus) == "back"
        page.keyboard.press("Tab")
        assert page.evaluate(focus) == "start"
        page.keyboard.press("ArrowRight")  # from the newest, the last, to the first
        expect(page.locator("#reports")).to_have_text("1,000")
        assert page.evaluate(focus) == "start"
        page.locator("#find-text").focus()
        page.keyboard.type("EEN")
        expect(page.locator("#values tbody .label")).to_have_text(["green"])


@pytest.mark.long
@pytest.mark.parametrize("look", ["light", "dark", "narrow"])
def test_the_page_has_no_accessibility_violations(standin, chromium, look):
    with_windows(standin)
    with page_of(chromium) as page:
        page.emulate_media(color_scheme="dark" if look == "dark" else "light", reduced_motion="reduce")
        if look == "narrow":
            page.set_viewport_size({"width": 390, "height": 844})
        window = {"stream": "colours", "window": "6h", "start": BEGIN, "method": "power"}
        for place in ({"view": "all"}, window):
            open_at(page, standin, **place)
            expect(page.locator("#reports")).to_have_text("1,000" if "window" in place else "10,000")
            assert axe.violations(page) == {}, place
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        open_at(page, standin, stream="colours", window="6h", start="5")
        expect(page.get_by_role("alert")).to_be_visible()
        assert axe.violations(page) == {}


def test_the_page_of_a_worker_shows_its_published_values(kafka, redis_url, tmp_path, chromium):
    queries = [{"name": "warm", "values": ["red", "<b>&amp;"]}, {"name": "most", "top": 2}]
    table = {"labels": ["red", "green", "blue", "<b>&amp;"], "domain_size": 4, "queries": queries}
    with World(kafka, redis_url, tmp_path, partitions=2, **table) as world, page_of(chromium) as page:
        (worker,) = world.start()
        world.send(40)
        last = world.covered()
        page.goto(f"http://127.0.0.1:{worker.port()}/")
        expect(page.locator("#connection")).to_have_text("Live")
        expect(page.locator("#epsilon")).to_have_text(f"{float(world.stream.oracle.epsilon):g}")
        expect(page.locator("#epsilon-times")).to_have_text(f" = {math.exp(world.stream.oracle.epsilon):.2f}")
        page.locator("#method").click()
        for _ in range(2):
            expect(page.locator("#reports")).to_have_text(f"{last.reports:,}")
            expect(page.locator("#age")).to_have_text(re.compile(r"^\d+\s(s|min) ago$"))
            expect(page.locator("#sequence")).to_have_text(f"#{last.sequence}")
            base = last.bodies["base"]
            order = np.argsort(-base.frequencies, kind="stable")
            for method in ("base", "norm-sub"):
                choose(page, "methods", method)
                expect(page.locator("#values tbody .number")).to_have_text(
                    [share(last.bodies[method].frequencies[v], last.std_error) for v in order]
                )
                warm = share(last.bodies[method].sets[0].frequency, last.std_error)
                expect(page.locator("#queries tbody .number")).to_have_text([warm])
            assert cells(page, "values", "label") == [table["labels"][v] for v in order]
            assert page.locator("#queries tbody .of bdi").all_inner_texts() == queries[0]["values"]
            assert cells(page, "values", "interval") == [
                between(base.low[v], base.high[v], last.std_error) for v in order
            ]
            world.send(20)
            last = world.covered()
        page.goto(f"http://127.0.0.1:{worker.port()}/#stream={world.name}&window=9h")
        expect(page.get_by_role("alert")).to_be_visible()
        assert axe.violations(page) == {}


def test_the_page_is_small_and_loads_nothing_from_other_origins(standin, chromium):
    files = [path for path in PAGE.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 100_000
    for path in files:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"(?m)^\s*//.*$| // .*$", "", text), path.name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|localStorage|cookie", text
        )
    standin.snapshots["colours", "all", ""] = collected()
    with page_of(chromium) as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        open_at(page, standin)
        expect(page.locator("#reports")).to_have_text("10,000")
        assert {url for url in asked if not url.startswith(standin.address)} == set()
        assert {url.removeprefix(standin.address) for url in asked} >= {
            f"page/{path.name}" for path in files
        } - {"page/index.html", "page/help.html"}


def test_every_method_has_a_description():
    text = (PAGE / "methods.js").read_text(encoding="utf-8")
    assert re.findall(r'(?m)^  "?([a-z-]+)"?: "', text) == list(METHODS)


@pytest.mark.long
def test_names_of_object_prototypes_in_the_url_are_ordinary_names(standin, chromium):
    name = "__proto__"
    shown = collected()
    standin.snapshots["colours", "all", ""] = shown
    standin.streams[0]["windows"] = ["all", "1h"]
    with page_of(chromium) as page:
        open_at(page, standin, window=name)
        expect(page.get_by_role("alert")).to_contain_text(f"There is no window of {name} yet.")
        for key in ("stream", "method", "view", "sort", "find", "start"):
            open_at(page, standin, **{key: name})
        open_at(page, standin, method=name)
        expect(page.locator("#reports")).to_have_text("10,000")
        expect(page.locator("#method-name")).to_have_text("norm-sub")


@pytest.mark.long
def test_the_page_reports_messages_that_the_head_does_not_name(standin, chromium):
    standin.unnamed = True
    with page_of(chromium) as page:
        open_at(page, standin)
        expect(page.get_by_role("alert")).to_contain_text("Messages on the snapshot topic are not shown.")
        expect(page.get_by_role("alert")).to_contain_text("Check who may write to the snapshot topic.")
