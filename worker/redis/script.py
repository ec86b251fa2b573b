"""Lua scripts, which a server runs as one step."""

import hashlib
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError

from worker.redis.connecting import Client
from worker.redis.pipelining import Command


class Script:
    """A script of a client.

    Only a server that does not have it gets its text. All keys that it touches must be named, for keys on their way
    from one node to another.
    """

    def __init__(self, client: Client, text: str) -> None:
        self._client, self._text = client, text
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        """Runs it, on the server that has the keys."""
        command = self.on(keys, args)
        try:
            return command.send(self._client)
        except NoScriptError:
            return command.text(self._client)

    def on(self, keys: Sequence[str], args: Sequence[Any] = ()) -> Command:
        """Returns the command that runs it, to be sent together with others."""
        return Command(
            keys[0],
            lambda client: client.evalsha(self._sha, len(keys), *keys, *args),
            lambda client: client.eval(self._text, len(keys), *keys, *args),
        )
