"""A stream of one test's own."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.services import Services
from tests.integration.harness import World


@pytest.fixture
def world(local_services: Services, tmp_path: Path) -> Iterator[World]:
    """A stream on services that this test may break."""
    with World(local_services.kafka.address, local_services.redis.address, tmp_path) as world:
        yield world
    gc.collect()
