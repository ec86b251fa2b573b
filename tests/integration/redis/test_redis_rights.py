"""Redis rights: the documented ones are enough, and each is needed."""

import contextlib
import re
import secrets
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from redis.crc import key_slot

from tests.support.harness import World, until
from tests.support.harness.authority import Authority
from tests.support.harness.matrix import commanded, main_path
from tests.support.harness.redises import Redises
from tests.support.harness.valkey import valkey_program
from tests.support.stores import Singly
from worker import check, config
from worker.audit import reading
from worker.counting import layout
from worker.counting.ports import Answer, Metadata, Unavailable
from worker.redis.advice import described
from worker.redis.connecting import connect
from worker.redis.errors import ERRORS
from worker.store import removal

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).parents[3] / "docs/operate/redis.md").read_text(encoding="utf-8")
RULES = {
    rule.replace("\\|", "|"): who.split(", ")
    for rule, who in re.findall(r"^\| `([~+][^`]+)` \| ([a-z, ]+) \|", PAGE, re.MULTILINE)
}
PASSWORD, ADMIN = secrets.token_hex(8), secrets.token_hex(8)
WHO = ["run", "audit", "check", "remove", "import"]
STREAM = "colours"


def rules(*who, but=None, stream=STREAM):
    """Returns the rights of commands except one."""
    needed = [rule for rule, users in RULES.items() if {*users} & {*who} and rule != but]
    return [rule.replace("STREAM", stream) for rule in needed]


def allow(client, allowed):
    """Resets the user's rights and flushes scripts."""
    client.execute_command("ACL SETUSER", "worker", "reset", "on", f">{PASSWORD}", *allowed)
    client.script_flush()
    client.execute_command("ACL LOG", "RESET")


@pytest.fixture(scope="module")
def redises(local_services, tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("rights") / "ca")
    authority.sign("server", "IP:127.0.0.1")
    with Redises(local_services.folder, "rights", authority) as redises:
        yield redises


@pytest.fixture(scope="module")
def server(redises):
    return redises.start(requirepass=ADMIN)


@pytest.fixture
def admin(server):
    with redis.Redis(port=server.port, password=ADMIN) as client:
        client.flushall()
        yield client


def table(url):
    return config.Redis(url=url, password=PASSWORD)


def run(url):
    """Runs every step of a worker's store."""
    with contextlib.closing(connect(table(url))) as client:
        store = Singly(client, STREAM)
        held, blobs = Metadata('{"group": "g"}', 1, 0, "", {}, "{}"), {"all": b"1", "0+60000": b"2"}
        assert store.claim(0, None, held) is not None
        for new, cells in (("a", ["all", "0+60000"]), ("b", ["all"])):
            after = replace(held, offset=held.offset + 1, commit_id=new, blobs=dict.fromkeys(cells, new))
            store.stage(0, new, {cell: blobs[cell] for cell in cells})
            assert store.promote(0, new, held, after) is Answer.DONE
            held = after
        assert store.compare(0, held) is Answer.DONE
        found = store.peek(0)
        assert found == held
        assert store.claim(0, found, held).metadata.epoch == 2
        assert store.cut(0).blobs == {"all": b"1"}


def recount(url):
    with contextlib.closing(connect(table(url))) as client:
        fields, blobs = reading.cut_of(client, layout.meta_key(STREAM, 0).removesuffix("meta"))
        assert fields["epoch"] == "2"
        assert blobs == {"all": b"1"}
        assert not client.exists(layout.meta_key(STREAM, 1))


def look(url):
    with contextlib.closing(connect(table(url))) as client:
        assert client.info()
        pipeline = client.pipeline(transaction=False)
        pipeline.hgetall(layout.meta_key(STREAM, 0))
        assert pipeline.execute()[0]


def remove(url):
    with contextlib.closing(connect(table(url))) as client:
        client_keys = removal.keys_of(client, STREAM)
        assert client_keys
        removal.delete(client, client_keys)


def install(url):
    with contextlib.closing(connect(table(url))) as client:
        store = Singly(client, STREAM)
        assert store.peek(7) is None
        store.stage(7, "attempt", {"all": b"1"})
        held = Metadata('{"group": "g"}', 1, 5, "a", {"all": "a"}, "{}")
        assert store.install(7, "attempt", held) is Answer.DONE
        assert store.peek(7) == held
        assert store.install(7, "attempt", held) is Answer.DONE


STEPS = {"run": run, "audit": recount, "check": look, "remove": remove, "import": install}


@pytest.mark.long
@pytest.mark.parametrize("who", WHO)
def test_every_listed_right_is_needed(admin, server, who):
    url = f"redis://worker@127.0.0.1:{server.port}"
    needed = [rule for rule, users in RULES.items() if who in users]
    assert needed
    for missing in (*needed, None):
        admin.flushall()
        if who != "run":
            allow(admin, rules("run"))
            run(url)
            kept = layout.staged_key(STREAM, 0, "attempt", "all")
            admin.set(kept, b"1")
        allow(admin, rules(who, but=missing))
        if missing is None:
            STEPS[who](url)
            assert admin.execute_command("ACL LOG") == []
            continue
        # SCAN shows all keys, whatever the patterns, so the deletion of a foreign key fails visibly
        with pytest.raises((Unavailable, *ERRORS)) as refused:
            STEPS[who](url)
        assert re.search("permission|user executing the script", str(refused.value)), missing
        denied = missing.removeprefix("+") if missing.startswith("+") else "key"
        log = admin.execute_command("ACL LOG")
        objects = {(entry.get("reason"), entry.get("object")) for entry in map(_entry, log)}
        assert any(reason == "key" if denied == "key" else named == denied for reason, named in objects), (
            missing
        )


def keys(admin, *, staged=True):
    """Returns all keys with their values and whether they expire."""
    found = admin.scan_iter("*")
    return {key: (admin.dump(key), admin.ttl(key) > 0) for key in found if staged or b":staged:" not in key}


@pytest.mark.long
@pytest.mark.parametrize("cells", [["all"], ["all", "0+60000"]], ids=["a pane goes", "none goes"])
def test_a_commit_that_lacks_a_right_changes_nothing(admin, server, cells):
    url = f"redis://worker@127.0.0.1:{server.port}"
    refused = set()
    for missing in (rule for rule, users in RULES.items() if "run" in users):
        admin.flushall()
        allow(admin, rules("run"))
        with contextlib.closing(connect(table(url))) as client:
            store, both = Singly(client, STREAM), ["all", "0+60000"]
            held = Metadata('{"group": "g"}', 1, 0, "", {}, "{}")
            assert store.claim(0, None, held) is not None
            first = replace(held, offset=1, commit_id="a", blobs=dict.fromkeys(both, "a"))
            store.stage(0, "a", dict.fromkeys(both, b"1"))
            assert store.promote(0, "a", held, first) is Answer.DONE
            after = replace(first, offset=2, commit_id="b", blobs=dict.fromkeys(cells, "b"))
            store.stage(0, "b", dict.fromkeys(cells, b"2"))
            before = keys(admin)
            allow(admin, rules("run", but=missing))
            try:
                store.promote(0, "b", first, after)
            except Unavailable:
                refused.add(missing)
                assert keys(admin) == before, missing
            allow(admin, rules("run"))
            assert store.promote(0, "b", first, after) is Answer.DONE
            assert store.cut(0).blobs == dict.fromkeys(cells, b"2")
    assert {"+rename", "+persist", "+hset", "~{STREAM:*}:window:*"} <= refused
    assert ("+del" in refused) == (len(cells) == 1)


@pytest.mark.long
def test_an_import_that_lacks_a_right_leaves_nothing_readable(admin, server):
    url = f"redis://worker@127.0.0.1:{server.port}"
    held = Metadata('{"group": "g"}', 1, 5, "a", {"all": "a", "0+60000": "a"}, "{}")
    blobs, refused = {"all": b"1", "0+60000": b"2"}, set()
    for missing in (rule for rule, users in RULES.items() if "import" in users):
        admin.flushall()
        allow(admin, rules("import"))
        with contextlib.closing(connect(table(url))) as client:
            store, whole = Singly(client, STREAM), Singly(admin, STREAM)
            store.stage(7, "a", blobs)
            allow(admin, rules("import", but=missing))
            with contextlib.suppress(Unavailable):
                assert store.install(7, "a", held) is Answer.DONE
                continue
            refused.add(missing)
            assert whole.cut(7) is None, missing
            allow(admin, rules("import"))
            store.stage(7, "b", blobs)
            assert store.install(7, "b", held) is Answer.DONE
            assert whole.cut(7).blobs == blobs
            assert not any(ends for key, (_, ends) in keys(admin).items() if b":staged:" not in key)
    assert {"+rename", "+persist", "+hset"} <= refused


def _entry(entry):
    """Returns an entry of ACL LOG as texts."""
    pairs = entry.items() if isinstance(entry, dict) else zip(entry[::2], entry[1::2], strict=True)
    return {_text(key): _text(value) for key, value in pairs}


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def refused(admin):
    """Returns the refused commands, except that in which a client names its library."""
    log = admin.execute_command("ACL LOG")
    return {_entry(entry)["object"] for entry in log} - {"client|setinfo"}


@pytest.mark.parametrize(
    "valkey", [False, pytest.param(True, marks=pytest.mark.long)], ids=["Redis", "Valkey"]
)
def test_the_listed_rights_are_enough(redises, local_services, tmp_path, valkey):
    if valkey and valkey_program() is None:
        pytest.fail("there is no valkey-server on PATH, nor a wheel with one", pytrace=False)
    port = redises.start(program=valkey_program() if valkey else None, requirepass=ADMIN).port
    at, store = f"redis://worker@127.0.0.1:{port}/0", {"password": PASSWORD}
    with (
        redis.Redis(port=port, password=ADMIN) as admin,
        World(local_services.kafka.address, at, tmp_path, partitions=2, store=store) as world,
    ):
        world.redis = admin
        allow(admin, rules("run", "check", stream=world.name))
        world.launch()
        main_path(world)
        world.workers[0].terminate()
        world.start(1)
        world.send(20, 2)
        world.assert_right(world.covered())
        assert ("Valkey " in commanded(world, "check")) == valkey
        world.workers[1].terminate()
        until(lambda: not world.members(), "nobody is in the group")
        assert refused(admin) == {"config|get"}
        for who, command in (
            ("audit", ["audit"]),
            ("check", ["check"]),
            ("remove", ["remove", world.name, "--yes"]),
        ):
            allow(admin, rules(who, stream=world.name))
            commanded(world, *command)
            assert refused(admin) <= {"config|get"}
        assert admin.keys(f"{{{world.name}:*") == []


def test_check_names_missing_rights_of_redis(admin, server, tmp_path):
    allow(admin, [])
    url = f"redis://worker@127.0.0.1:{server.port}"
    stream = (
        f'[[streams]]\nname = "{STREAM}"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'
    )
    toml = tmp_path / "worker.toml"
    toml.write_text(f'[redis]\nurl = "{url}"\npassword = "{PASSWORD}"\n{stream}')
    found, *_ = check.redis.look(config.load(toml, {}), None, {})
    assert "NoPermissionError" in found.text
    assert {rule for rule in RULES if rule not in found.hint.replace(";", "").split()} == set()


@pytest.mark.long
def test_a_cluster_needs_three_more_rights(redises):
    servers = redises.cluster(3, requirepass=ADMIN, masterauth=ADMIN)
    url = f"redis+cluster://worker@127.0.0.1:{servers[0].port}"
    nodes = [redis.Redis(port=server.port, password=ADMIN) for server in servers]
    names = [node.execute_command("CLUSTER MYID").decode() for node in nodes[:3]]
    # a slot in migration: the client asks the other node for missing keys
    slot = key_slot(layout.meta_key(STREAM, 7).encode())
    of = next(number for number in range(3) if slot < 16384 * (number + 1) // 3)
    to = (of + 1) % 3
    nodes[to].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[of])
    nodes[of].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[to])

    def way():
        with contextlib.closing(connect(table(url))) as client:
            assert Singly(client, STREAM).peek(7) is None
        run(url)

    needed = [rule for rule, users in RULES.items() if "cluster" in users]
    assert len(needed) == 3
    for missing in (*needed, None):
        for node in nodes:
            allow(node, rules("run", "cluster", but=missing))
        if missing is None:
            way()
        else:
            with pytest.raises((Unavailable, *ERRORS)) as refused:
                way()
            assert missing != "+cluster|slots" or "NoPermissionError" in described(refused.value)
    for node in nodes:
        node.close()
