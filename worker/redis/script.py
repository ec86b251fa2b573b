"""A script in Lua, which a server runs as one step."""

import hashlib
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError

from worker.redis.connecting import Client
from worker.redis.pipelining import Command


class Script:
    """A script of a client.

    A server that does not know it, as one that was just promoted does not, gets its text: that server alone, so that no
    other node of a cluster has to answer. All keys that it touches have to be named: of keys on their way from one node
    to another only those are looked for at both.

    Args:
        client: who sends it.
        text: in Lua.
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
