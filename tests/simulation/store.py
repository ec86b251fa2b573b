"""Redis in memory: keys, expiry, and the worker's own Lua scripts.

Requests may be lost, delayed or repeated, and replies lost. Acknowledged writes may be lost, too.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import redis
from lupa.lua51 import LuaRuntime
from redis.exceptions import NoScriptError

from tests.simulation.scheduler import Crash, Member, Task
from tests.simulation.world import World

_LUA = LuaRuntime(encoding=None, unpack_returned_tuples=False)
_WRAP = _LUA.eval(
    b"function(source, redis, cjson)"
    b" local made = assert(loadstring('local KEYS, ARGV, redis, cjson = ...; ' .. source));"
    b" return function(keys, argv) return made(keys, argv, redis, cjson) end end"
)
_TABLE = _LUA.eval(b"function(...) return {...} end")
_COMPILED: dict[str, Any] = {}
_SERVING: list["MemoryRedis"] = []


class MemoryRedis:
    """The keys of one Redis."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.keys: dict[bytes, Any] = {}
        self.expiries: dict[bytes, float] = {}
        self.on_write: Callable[[Any, bytes, Any, Any], None] = lambda *_: None
        self.on_claim: Callable[[Any, bytes], None] = lambda *_: None
        self.past: dict[bytes, list[dict[bytes, Any]]] = {}
        self.refused: dict[bytes, tuple[float, bool]] = {}
        """A partition's tag -> until when the node that has its keys refuses them, and whether only writes."""

    def command(self, name: bytes, *args: Any) -> Any:
        """Runs a command of a script."""
        arguments = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        return getattr(self, {b"DEL": "delete"}.get(name) or name.decode().lower())(*arguments)

    def live(self, key: bytes) -> Any:
        if key in self.expiries and self.expiries[key] <= self.world.now:
            self.keys.pop(key, None)
            del self.expiries[key]
        return self.keys.get(key)

    def hmget(self, key: bytes, *names: bytes) -> list[Any]:
        found = self.live(key) or {}
        return [found.get(name, False) for name in names]

    def hget(self, key: bytes, name: bytes) -> Any:
        return (self.live(key) or {}).get(name, False)

    def hgetall(self, key: bytes) -> list[bytes]:
        return [item for pair in (self.live(key) or {}).items() for item in pair]

    def hset(self, key: bytes, *pairs: bytes) -> int:
        self.keys[key] = (self.live(key) or {}) | dict(zip(pairs[::2], pairs[1::2], strict=True))
        return 1

    def get(self, key: bytes) -> Any:
        found = self.live(key)
        return False if found is None else found

    def exists(self, key: bytes) -> int:
        return int(self.live(key) is not None)

    def delete(self, key: bytes) -> int:
        self.expiries.pop(key, None)
        return int(self.keys.pop(key, None) is not None)

    def rename(self, key: bytes, to: bytes) -> bytes:
        value = self.live(key)
        if value is None:
            raise redis.ResponseError("no such key")
        if key == to:
            return b"OK"
        del self.keys[key]
        self.keys[to] = value
        self.expiries.pop(to, None)
        if key in self.expiries:
            self.expiries[to] = self.expiries.pop(key)
        return b"OK"

    def persist(self, key: bytes) -> int:
        return int(self.expiries.pop(key, None) is not None)

    def of(self, tag: bytes) -> dict[bytes, Any]:
        """Returns the keys of a partition that stay."""
        return {
            key: value for key, value in self.keys.items() if key.startswith(tag) and b":staged:" not in key
        }

    def go_back(self, tag: bytes, to: dict[bytes, Any]) -> None:
        """A partition's keys are again what they once were."""
        for key in self.of(tag):
            del self.keys[key]
        self.keys.update(to)

    def refuses(self, tag: bytes, *, writes: bool = True) -> bool:
        """Returns whether the node that has a partition's keys refuses them now."""
        until, full = self.refused.get(tag, (0.0, False))
        return self.world.now < until and (writes or not full)

    def stands(self, key: bytes, args: list[bytes]) -> bool:
        """Returns whether a partition is unchanged since its claimant read it."""
        meta = self.live(key) or {}
        return (meta.get(b"epoch", b""), meta.get(b"lineage", b"")) == (args[1], args[2])

    def due(self, keys: list[bytes], args: list[bytes]) -> set[bytes]:
        """Returns the answers that a commit or a comparison may get."""
        meta = self.live(keys[0])
        if not meta:
            return {b"lineage"}
        lineage, epoch, offset, commit_id = args[:4]
        others = {b"fenced"} if meta[b"epoch"] != epoch else set()
        if meta[b"lineage"] != lineage:
            others.add(b"lineage")
        if others:
            return others
        stands = meta[b"offset"], meta[b"commit_id"]
        commits = len(args) > 4
        if commits and stands == (args[4], args[5]):
            return {b"done"}
        if stands != (offset, commit_id):
            return {b"conflict"}
        needed = keys[1 : 1 + 2 * int(args[9]) : 2] if commits else keys[1:]
        if all(self.exists(key) for key in needed):
            return {b"done"}
        return {b"staging_expired"} if commits else {b"lineage"}

    def due_to_import(self, keys: list[bytes], args: list[bytes]) -> bytes:
        """Returns the expected answer of an import."""
        if meta := self.live(keys[0]):
            same = (meta[b"lineage"], meta[b"offset"], meta[b"commit_id"]) == (args[1], args[3], args[5])
            return b"done" if same else b"conflict"
        return b"done" if all(self.exists(key) for key in keys[1::2]) else b"staging_expired"

    def set(self, key: bytes, value: bytes, seconds: float) -> None:
        self.keys[key], self.expiries[key] = value, self.world.now + seconds

    def run(self, text: str, keys: list[bytes], args: list[bytes]) -> Any:
        """Runs a script atomically."""
        if text not in _COMPILED:
            _COMPILED[text] = _WRAP(text.encode(), _REDIS, _CJSON)
        _SERVING[:] = [self]
        return _python(_COMPILED[text](_TABLE(*keys), _TABLE(*args)))


def _call(name: bytes, *args: Any) -> Any:
    reply = _SERVING[0].command(name, *args)
    return _TABLE(*reply) if isinstance(reply, list) else reply


def _error(said: bytes) -> Any:
    raise redis.ResponseError(said.decode())


def _python(reply: Any) -> Any:
    if reply is False or reply is None:
        return None
    if isinstance(reply, bytes | int):
        return reply
    return [_python(reply[i + 1]) for i in range(len(reply))]


_REDIS = _LUA.table_from({b"call": _call, b"error_reply": _error})
_CJSON = _LUA.table_from(
    {b"decode": lambda text: _LUA.table_from({k.encode(): v.encode() for k, v in json.loads(text).items()})}
)


class Process(Member):
    """Process with a Redis client, and the metadata that its threads read."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked, self.looked, self.cut_at = dict[str, int](), dict[str, int](), 0
        self.peeked: dict[tuple[Task | None, str], Mapping[bytes, bytes]] = {}
        self.uncounted: dict[tuple[Task | None, str], int] = {}  # when each found that nothing was committed


class Client:
    """Stands in for `redis.Redis`; the history decides each call's fate."""

    def __init__(self, server: MemoryRedis, member: Process) -> None:
        self.server, self.member, self.world = server, member, server.world
        self._again = set[bytes]()

    def hgetall(self, key: str) -> Any:
        return self.run(self.reading(key))

    def evalsha(self, sha: str, count: int, *rest: Any) -> Any:
        raise NoScriptError("it knows no script before it has the text")

    def eval(self, text: str, count: int, *rest: Any) -> Any:
        return self.run(self.evaluating(text, count, *rest))

    def pipeline(self, transaction: bool) -> "Pipeline":
        return Pipeline(self)

    def run(self, sent: "Sent") -> Any:
        """Applies its fate to a request; returns the reply unless it is lost."""
        lost = redis.TimeoutError("Timeout reading from socket")
        # a repeated call with the missing names is the same step, and has the same fate
        reply = (
            sent.effect()
            if sent.again
            else self.world.call(sent.what, sent.effect, lambda: lost, sent.writes)
        )
        sent.heard(reply)
        return reply

    def served(self, key: bytes, effect: Callable[[], Any], writes: bool) -> Callable[[], Any]:
        """Returns the effect of a command at the node that has its key."""

        def served() -> Any:
            if self.server.refuses(key[: key.index(b"}") + 1], writes=writes):
                raise redis.ResponseError("OOM command not allowed when used memory > 'maxmemory'.")
            return effect()

        return served

    def reading(self, key: str) -> "Sent":
        def effect() -> Mapping[bytes, bytes]:
            return dict(self.server.live(key.encode()) or {})

        def heard(found: Mapping[bytes, bytes]) -> None:
            self.member.peeked[self.world.current, key], self.member.looked[key] = found, self.world.steps
            if not found or not found[b"commit_id"]:
                self.member.uncounted[self.world.current, key] = self.world.steps

        self.member.asked[key] = self.world.steps
        return Sent(f"hgetall {key}", self.served(key.encode(), effect, False), False, heard)

    def evaluating(self, text: str, count: int, *rest: Any) -> "Sent":
        name = text.split("\n", 1)[0][3:40]
        writes = "'HSET'" in text
        reads = not writes and "blobs" in text
        claims = "expected epoch" in text
        imports = text.startswith("-- Imports")
        raw, sent = (
            [arg if isinstance(arg, bytes) else str(arg).encode() for arg in part]
            for part in (rest[:count], rest[count:])
        )
        again = raw[0] in self._again
        self._again.discard(raw[0])
        if claims and not again:
            self.server.on_claim(self.member, raw[0])

        def effect() -> Any:
            before = self.server.keys.get(raw[0])
            if imports:
                due = {self.server.due_to_import(raw, sent)}
            else:
                due = set() if claims or reads else self.server.due(raw, sent)
            stale = claims and not self.server.stands(raw[0], sent)
            reply = self.server.run(text, raw, sent)
            asks = isinstance(reply, list) and len(reply) == 1  # returned early to ask for more cells
            assert not claims or asks or (reply is None) == stale, (
                "a claim of what another one has claimed since"
            )
            assert not isinstance(reply, bytes) or reply in due, f"{name}: {reply!r}, where it is {due}"
            if writes:
                self.server.on_write(self.member, raw[0], before, reply)
            return reply

        def heard(reply: Any) -> None:
            if isinstance(reply, list) and len(reply) == 1:
                self._again.add(raw[0])
            if reads:
                self.member.cut_at = self.world.steps

        arrives = effect if again else self.served(raw[0], effect, writes)
        return Sent(f"{name}: {raw[0].decode()}", arrives, writes, heard, again)

    def setting(self, sets: list[tuple[bytes, bytes, float]]) -> "Sent":
        def effect() -> bool:
            for key, value, ex in sets:
                in_time = self.world.rng.random() >= self.world.faults.staging_expired
                self.server.set(key, value, ex if in_time else 0.0)
            return True

        return Sent(f"set {sets[0][0].decode()}", self.served(sets[0][0], effect, True), True)


@dataclass
class Sent:
    """A command on its way."""

    what: str  # for scripts and traces
    effect: Callable[[], Any]  # at the node; returns the reply
    writes: bool
    heard: Callable[[Any], object] = lambda _: None  # called with a reply that arrived
    again: bool = False  # the second half of a step that met its fate already


class Pipeline:
    """Commands that are sent together, interleaved with those of others.

    If the connection is lost, some of the rest may still run.
    """

    def __init__(self, client: Any) -> None:
        self.client, self.world = client, client.world
        self.sent = list[Sent]()
        self.places = list[int]()
        """Positions of the answered commands: all writes to one partition are one step."""
        self.sets: dict[str, tuple[int, list[tuple[bytes, bytes, float]]]] = {}

    def _add(self, sent: Sent) -> None:
        self.sent.append(sent)
        self.places.append(len(self.sent) - 1)

    def hgetall(self, key: str) -> None:
        self._add(self.client.reading(key))

    def evalsha(self, sha: str, count: int, *rest: Any) -> None:
        self.places.append(-1)

    def eval(self, text: str, count: int, *rest: Any) -> None:
        self._add(self.client.evaluating(text, count, *rest))

    def set(self, key: str, value: bytes, ex: float) -> None:
        tag = key[: key.index("}")]
        one = key.encode(), value, ex
        if tag not in self.sets:
            self.sets[tag] = len(self.sent), [one]
            self._add(self.client.setting(self.sets[tag][1]))
        else:
            self.sets[tag][1].append(one)
            self.places.append(self.sets[tag][0])

    def execute(self, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        replies = list[Any]()
        for at, sent in enumerate(self.sent):
            try:
                replies.append(self.client.run(sent))
            except redis.ResponseError as error:
                replies.append(error)
            except (redis.TimeoutError, Crash):
                self._lose(self.sent[at + 1 :])
                raise
        unknown = NoScriptError("it knows no script before it has the text")
        return [unknown if place < 0 else replies[place] for place in self.places]

    def _lose(self, rest: list[Sent]) -> None:
        """Has a first part of some commands arrive later, or none."""
        arrives = rest[: int(self.world.rng.random() * (len(rest) + 1))] if rest else []
        if late := [(sent.what, sent.effect) for sent in arrives if sent.writes]:
            self.world.note("a pipeline is cut off")
            self.world.late += late
