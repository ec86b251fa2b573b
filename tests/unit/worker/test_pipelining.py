"""Commands sent together: each has its own answer, and a server without a script gets its text."""

from typing import Any

import redis
from redis.exceptions import NoScriptError

from worker.redis.pipelining import together
from worker.redis.script import Script


class Server:
    """A server with scripted answers, which records its requests."""

    def __init__(self, *answers: list[Any]) -> None:
        self.answers, self.sent = list(answers), list[list[str]]()

    def pipeline(self, transaction: bool) -> Any:
        assert not transaction
        sent, server = list[str](), self

        class Pipeline:
            def evalsha(self, _sha: str, _count: int, key: str) -> None:
                sent.append(f"sha {key}")

            def eval(self, _text: str, _count: int, key: str) -> None:
                sent.append(f"text {key}")

            def execute(self, raise_on_error: bool) -> list[Any]:
                assert not raise_on_error
                server.sent.append(sent)
                answer = server.answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer

        return Pipeline()


def run(server: Server, *keys: str) -> list[Any]:
    client: Any = server
    script = Script(client, "return 1")
    return together(client, [script.on([key]) for key in keys])


def test_a_refused_command_affects_one_partition_only() -> None:
    refused = redis.ResponseError("OOM command not allowed")
    server = Server([b"done", refused, b"done"])
    assert run(server, "a", "b", "c") == [b"done", refused, b"done"]
    assert server.sent == [["sha a", "sha b", "sha c"]]


def test_an_unknown_script_is_sent_again_in_one_more_pipeline() -> None:
    server = Server([NoScriptError(), b"done", NoScriptError()], [b"1", b"3"])
    assert run(server, "a", "b", "c") == [b"1", b"done", b"3"]
    assert server.sent[1:] == [["text a", "text c"]]


def test_a_lost_connection_leaves_the_outcome_of_every_command_unknown() -> None:
    lost = redis.TimeoutError("Timeout reading from socket")
    server: Any = Server(lost)
    assert run(server, "a", "b") == [lost, lost]
    assert len(server.sent) == 1  # nothing is sent twice
