"""A restored backup of Redis: the worker counts the missing records again."""

import shutil
import subprocess
from contextlib import closing

import pytest
import redis

from deploy.local.services import free_ports, redis_answers, redis_program
from tests.support.harness import World, until

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def store(tmp_path):
    """Starts a Redis on a data folder and stops the previous one."""
    (port,) = free_ports(1)
    running = []

    def start(folder, appendonly):
        stop()
        command = [redis_program(), "--port", str(port), "--dir", str(folder), "--save", ""]
        running.append(subprocess.Popen([*command, "--appendonly", appendonly], stdout=subprocess.DEVNULL))
        until(lambda: redis_answers(port), "Redis")
        return f"redis://127.0.0.1:{port}/0"

    def stop():
        for process in running:
            process.kill()
            process.wait()
        running.clear()

    yield start
    stop()


def test_a_restored_backup_recounts_later_reports(local_services, tmp_path, store):
    lost, restored, backup = tmp_path / "lost", tmp_path / "restored", tmp_path / "backup.rdb"
    lost.mkdir()
    restored.mkdir()
    url = store(lost, "yes")
    with World(local_services.kafka.address, url, tmp_path) as world:
        world.start()
        world.send(40)
        world.covered()
        with closing(redis.Redis.from_url(url)) as client:
            client.save()
        shutil.copy(lost / "dump.rdb", backup)
        world.send(40)
        world.covered()
        shutil.copy(backup, restored / "dump.rdb")
        store(restored, "no")
        with closing(redis.Redis.from_url(url)) as client:
            client.config_set("appendonly", "yes")
            until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the append-only file")
        store(restored, "yes")  # as it is served from then on
        world.send(10)
        newest = world.covered()
        assert newest.reports == 90
        assert newest.complete
        assert world.audit().difference is None
