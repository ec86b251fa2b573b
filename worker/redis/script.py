"""Lua scripts; a server runs each script in one atomic step."""

import hashlib
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError

from worker.redis.connecting import Client
from worker.redis.pipelining import Command


class Script:
    """A Lua script with a client that runs it.

    The client sends the script's text only if the server has not cached it. Each call must name all keys that the
    script uses, because a cluster may be moving keys between nodes.
    """

    def __init__(self, client: Client, text: str) -> None:
        self._client, self._text = client, text
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        """Runs the script on the server that has the keys."""
        command = self.on(keys, args)
        try:
            return command.send(self._client)
        except NoScriptError:
            return command.text(self._client)

    def on(self, keys: Sequence[str], args: Sequence[Any] = ()) -> Command:
        """Returns a command that runs the script, for a pipeline."""
        return Command(
            keys[0],
            lambda client: client.evalsha(self._sha, len(keys), *keys, *args),
            lambda client: client.eval(self._text, len(keys), *keys, *args),
        )
