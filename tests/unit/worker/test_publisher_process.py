"""The publisher process: which streams have one, and that its events equal those of a thread."""

import pickle
import threading
from multiprocessing import Pipe

import pytest
import structlog

import ldp
from ldp.snapshot import Cut
from tests.unit.worker.test_events import CASES, Listening
from worker.config import parse
from worker.counting.ports import NewerState, StateLost
from worker.service import publisher_process, publishing

TOLD = [
    *("info", "warning", "publishing", "published", "windows_closed", "compared", "checked"),
    *("publish_failed", "ticked", "recommend_failed"),
]
"""Events of a publisher, its recommender and its comparer."""


def configured(d, every=5, **more):
    keys = {"name": "s", "topic": "t", "protocol": "oue", "epsilon": "1", "domain_size": d} | more
    table = "\n".join(f"{key} = {value!r}" for key, value in keys.items())
    return parse(f'redis.password = "secret"\nsnapshots.every_seconds = {every}\n[[streams]]\n{table}')


def listened(events, *told):
    """Forwards events over a pipe, and acknowledges them."""
    ours, theirs = Pipe()
    with ours, theirs:
        for what in told:
            theirs.send(what)
        theirs.close()
        config, alive = configured(4), []
        parent = publisher_process.PublisherProcess(
            config, config.streams[0], lambda: (0, 1), lambda: 7, events
        )
        try:
            parent._listen(ours, threading.Event(), lambda: alive.append(1))
        except EOFError:
            return len(alive)
    raise AssertionError("it ends with the line alone")


def seen(tell, verb):
    """Returns the log and the metrics after an event."""
    listening = Listening()
    with structlog.testing.capture_logs() as logged:
        tell(listening, verb, CASES[verb][0])
    samples = listening.samples()
    listening.now = 21.0
    listening.progress.heartbeat()
    return logged, samples, listening.progress.describe()


def directly(listening, verb, given):
    getattr(listening.events, verb)(*given)


def told(listening, verb, given):
    said = []
    getattr(publisher_process._RemoteEvents(said.append), verb)(*given)
    assert listened(listening.events, *said, "alive") == 1


@pytest.mark.parametrize("verb", TOLD)
def test_remote_events_have_the_same_effect_as_local_ones(verb):
    logged, samples, says = seen(directly, verb)
    if verb == "recommend_failed":  # any kind of error arrives as one that every process can load
        logged[0]["error"] = f"RuntimeError: {logged[0]['error']}"
    assert seen(told, verb) == (logged, samples, says)


def test_the_size_of_a_remote_event_does_not_grow_with_the_domain():
    stream, said = ldp.Stream("s", ldp.GRR("1", 5000)), []
    taken = ldp.snapshot.take(stream, stream.oracle.estimate([1] * 5000, 5000), Cut({}, {}), 1)
    publisher_process._RemoteEvents(said.append).published(taken, 1.5)
    assert len(pickle.dumps(said)) < 20_000 < len(pickle.dumps(taken))


@pytest.mark.parametrize(
    "error", [StateLost("counts are gone"), NewerState("another version"), KeyError("x")]
)
def test_an_error_of_the_publisher_process_ends_the_stream(error):
    try:
        raise error
    except Exception as raised:
        portable = publisher_process._portable(raised)
    with pytest.raises(type(error) if isinstance(error, StateLost) else RuntimeError) as found:
        listened(Listening().events, portable)
    if isinstance(error, StateLost):
        assert found.value.args == error.args
    else:
        assert str(found.value) == "KeyError: 'x'"
        assert "raise error" in "".join(found.value.__notes__)


def test_the_publisher_process_receives_changes_only():
    ours, theirs = Pipe()
    epochs, stopping = iter([None, None, 3, 3, 3]), threading.Event()
    config = configured(4)

    def epoch():
        if (found := next(epochs, None)) is None and stopping.is_set():
            raise EOFError
        if found == 3:
            stopping.set()
        return found

    parent = publisher_process.PublisherProcess(
        config, config.streams[0], lambda: (0, 1), epoch, Listening().events
    )
    heard = []
    with ours, theirs:
        with pytest.raises(EOFError):
            parent._listen(ours, stopping, lambda: None)
        while theirs.poll():
            heard.append(theirs.recv())
    assert heard == [(None, [0, 1], False), (3, [0, 1], True)]


@pytest.mark.parametrize(
    ("config", "large"),
    [
        (configured(1024), False),
        (configured(5 * publishing.MOST_VALUES), False),
        (configured(5 * publishing.MOST_VALUES + 1), True),
        (configured(5 * publishing.MOST_VALUES, every=4.9), True),
        # for 25 open windows, and for all time
        (configured(3_150, windows=["24h every 1h"], grace="0s", max_out_of_orderness="1s"), False),
        (configured(3_151, windows=["24h every 1h"], grace="0s", max_out_of_orderness="1s"), True),
    ],
)
def test_large_snapshots_use_a_separate_process(config, large):
    (served,) = config.streams
    assert served.cost.open in (0, 25)
    assert publishing.is_large(config, served) is large


def test_the_configuration_is_passed_unchanged():
    config = configured(1000, windows=["1h"])
    assert pickle.loads(pickle.dumps(config)) == config
    assert config.redis.password.get_secret_value() == "secret"


def test_lost_counts_keep_their_remedy_across_processes():
    told = pickle.loads(pickle.dumps(StateLost("the counts are gone.", "restore Redis")))
    assert (told.cause, told.remedy) == ("the counts are gone.", "restore Redis")
    assert str(told) == "the counts are gone. Remedy: restore Redis."
