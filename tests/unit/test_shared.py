"""The services of a run: each pair is started once, whichever process asks, and a failure reaches each of them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from deploy.local.services import UnavailableError
from tests.support import shared
from tests.support.shared import Asker, Listener, Owner, Pair, Server


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setenv("LDP_TEST_KAFKA", "broker.example:9092")
    monkeypatch.setenv("LDP_TEST_REDIS", "redis://store.example/0")
    return Pair(Server("broker.example:9092"), Server("redis://store.example/0"))


def test_many_processes_share_one_pair_that_is_found_once(given: Pair) -> None:
    said: list[str] = []
    with Owner(said.append) as owner, Listener(owner) as listener, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: Asker(listener.path).found(), range(8)))
        assert owner.found() == given
    assert found == [given] * 8
    assert len(said) == 1
    assert "from LDP_TEST_KAFKA and LDP_TEST_REDIS" in said[0]


def test_a_failed_start_is_tried_once_and_reported_to_each_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts: list[None] = []

    def start(_: object) -> None:
        attempts.append(None)
        raise UnavailableError("there is no java on PATH")

    monkeypatch.setattr(shared.Services, "start", start)
    with Owner(print) as owner, Listener(owner) as listener:
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"(?s)there is no java on PATH.*LDP_TEST_KAFKA"):
                Asker(listener.path).local()
    assert len(attempts) == 1
