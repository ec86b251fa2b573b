"""A stream of one test's own."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.secure import Secure
from deploy.local.services import Services
from tests.integration.harness import TIMEOUT_SECONDS, Forked, World
from tests.integration.harness.postgres import Postgres, started
from tests.integration.harness.rights import LIMITED, LIMITED_PASSWORD
from tests.nursery import Nursery

collect_ignore = [] if os.environ.get("KUBEBUILDER_ASSETS") else ["test_api_server.py"]
"""What needs more than any package brings."""


@pytest.fixture(scope="session", autouse=True)
def _nursery() -> Iterator[None]:
    """Has the workers of these tests forked; that a worker starts by itself is shown by those that run commands."""
    with Nursery() as nursery, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forked, "nursery", nursery, raising=False)
        patch.setattr(World, "worker", Forked)
        yield


@pytest.fixture
def patient() -> Iterator[None]:
    """What a browser is to show may take its time: a busy machine is no failure."""
    from playwright.sync_api import expect  # late, for most tests here have no browser

    expect.set_options(timeout=TIMEOUT_SECONDS * 1000)
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture(scope="session")
def secure() -> Iterator[Secure]:
    """Services with a listener for each way in, for all tests that want one."""
    with Secure.start(users=dict.fromkeys(LIMITED, LIMITED_PASSWORD)) as secure:
        yield secure


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A Postgres, for all tests that want one."""
    with started() as server:
        yield server


@pytest.fixture
def world(local_services: Services, tmp_path: Path) -> Iterator[World]:
    """A stream on services that this test may break."""
    with World(local_services.kafka.address, local_services.redis.address, tmp_path) as world:
        yield world
    gc.collect()
