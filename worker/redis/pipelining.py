"""Sends many commands in one round trip, each with its own answer."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import AskError, MovedError, NoScriptError, TryAgainError

from worker.redis.connecting import Client
from worker.redis.errors import ERRORS

_UNANSWERED = (redis.ConnectionError, redis.TimeoutError)
_ELSEWHERE = (MovedError, AskError, TryAgainError)
"""The keys are on another cluster node, or are moving to one; the command had no effect."""


@dataclass(frozen=True)
class Command:
    """A command on one key, or a script on keys of one hash tag.

    Attributes:
        key: selects the node of a cluster.
        send: sends the command with a client, or adds it to a pipeline.
        text: like `send`, but with the script's text, for a server without the script.
    """

    key: str
    send: Callable[[Any], Any]
    text: Callable[[Any], Any]

    @classmethod
    def plain(cls, key: str, send: Callable[[Any], Any]) -> "Command":
        """Returns a command without a script."""
        return cls(key, send, send)


def together(client: Client, commands: Sequence[Command]) -> list[Any]:
    """Sends commands in one pipeline per server; returns answers in order.

    A server runs its commands in order, without MULTI, so commands of other clients can run in between. After a lost
    connection, some commands may have taken effect. The answer to a failed command is the error. If a server times out,
    the time-out is the answer to every command for that server.
    """
    replies: list[Any] = [None] * len(commands)
    for server, places in _by_server(client, commands, replies):
        for place, reply in zip(places, _sent(server, [commands[i].send for i in places]), strict=True):
            replies[place] = reply
        unknown = [place for place in places if isinstance(replies[place], NoScriptError)]
        for place, reply in zip(unknown, _sent(server, [commands[i].text for i in unknown]), strict=True):
            replies[place] = reply
        if isinstance(client, redis.RedisCluster) and isinstance(replies[places[-1]], _UNANSWERED):
            with contextlib.suppress(*ERRORS):  # the next unanswered command tries again
                client.nodes_manager.initialize()
    for place, command in enumerate(commands):
        if isinstance(replies[place], _ELSEWHERE):
            replies[place] = _followed(client, command.text)
    return replies


def _by_server(
    client: Client, commands: Sequence[Command], replies: list[Any]
) -> Iterable[tuple[Any, list[int]]]:
    """Groups indices of commands by server; writes errors into ``replies``."""
    if not isinstance(client, redis.RedisCluster):
        return [(client, list(range(len(commands))))] if commands else []
    servers = dict[str, tuple[Any, list[int]]]()
    for place, command in enumerate(commands):
        try:
            node: Any = client.get_node_from_key(command.key)  # type: ignore[no-untyped-call]
            server = client.get_redis_connection(node)
        except ERRORS as error:
            replies[place] = error
        else:
            servers.setdefault(node.name, (server, []))[1].append(place)
    return servers.values()


def _sent(server: Any, commands: Sequence[Callable[[Any], Any]]) -> list[Any]:
    """Sends commands to one server in one pipeline; returns answers or errors."""
    if not commands:
        return []
    try:
        pipeline = server.pipeline(transaction=False)
        for send in commands:
            send(pipeline)
        answers: list[Any] = pipeline.execute(raise_on_error=False)
    except ERRORS as error:
        return [error] * len(commands)
    return answers


def _followed(client: Client, send: Callable[[Any], Any]) -> Any:
    """Sends one command with the cluster client, which follows redirections."""
    try:
        return send(client)
    except ERRORS as error:
        return error
