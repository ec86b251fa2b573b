"""Fixtures: a stream of a test's own, and optional services."""

import gc
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.services import Server, Services
from tests.support.fork_server import ForkServer
from tests.support.harness import TIMEOUT_SECONDS, Forked, World
from tests.support.harness.postgres import Postgres, started
from tests.support.harness.redises import Redises
from tests.support.harness.rights import LIMITED, LIMITED_PASSWORD
from tests.support.harness.secure import Secure
from tests.support.shared import Pair


@pytest.fixture(scope="session", autouse=True)
def _fork_server() -> Iterator[None]:
    """Forks the workers of these tests."""
    with ForkServer() as fork_server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forked, "fork_server", fork_server, raising=False)
        patch.setattr(World, "worker", Forked)
        yield


@pytest.fixture
def patient() -> Iterator[None]:
    """Gives the browser as much time as other conditions have."""
    from playwright.sync_api import expect  # late, for most tests here have no browser

    expect.set_options(timeout=TIMEOUT_SECONDS * 1000)
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture(scope="session")
def secure() -> Iterator[Secure]:
    """Services with a listener for each kind of login and encryption."""
    with Secure.start(users=dict.fromkeys(LIMITED, LIMITED_PASSWORD)) as secure:
        yield secure


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A Postgres."""
    with started() as server:
        yield server


@pytest.fixture
def world(local_services: Pair, tmp_path: Path) -> Iterator[World]:
    """A stream on the services of the run."""
    with World(local_services.kafka.address, local_services.redis.address, tmp_path) as world:
        yield world
    gc.collect()


@pytest.fixture
def own_redis(local_services: Pair) -> Iterator[Server]:
    """A Redis that the test may stop, empty or reconfigure."""
    with Redises(local_services.folder, f"own-{secrets.token_hex(3)}") as redises:
        yield redises.start(appendfsync="always")


@pytest.fixture
def own_world(kafka: str, own_redis: Server, tmp_path: Path) -> Iterator[World]:
    """A stream on `own_redis`."""
    with World(kafka, f"redis://{own_redis.address}/0", tmp_path) as world:
        yield world
    gc.collect()


@pytest.fixture
def own_pair_world(own_services: Services, tmp_path: Path) -> Iterator[World]:
    """A stream on `own_services`."""
    with World(own_services.kafka.address, own_services.redis.address, tmp_path) as world:
        yield world
    gc.collect()
