"""Page of exit codes, rejection reasons and HTTP errors, from the code."""

import ast
import inspect
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import click

import ldp.cli
import worker.cli
from docs.generate.markdown import fill, table
from worker.cli.audit import EXIT_CODES
from worker.kafka.dead_letters.writer import MESSAGES

_HTTP = Path(__file__).parents[2] / "worker" / "http"
_CAUSES = {
    400: "a malformed request, an unknown parameter, or a response above the size limit",
    403: "an `Origin` that is not allowed",
    404: "an unknown path, stream or window. For a window, `windows` lists the available windows. `unnamed: true`: the"
    " topic has [messages that no head lists](http-api.md#messages-that-no-head-lists)",
    405: "a method other than GET and HEAD",
    421: "a `Host` that is not allowed",
    503: "the topic has not been read yet, too many responses wait to be encoded, or a limit of event streams is"
    " reached",
}
_EXCEPTIONS = {"Busy": 503, "HTTPException": 404, "Refused": 400}
"""Statuses of exceptions whose call does not contain the status."""
_EXIT = re.compile(r"(?i)\bexits? (?:codes?|with)\b")


def page() -> str:
    """Returns the page of the errors."""
    return fill(
        "errors.md",
        codes=table(
            ("command", "code", "meaning"), *_codes("ldp", ldp.cli), *_codes("ldp-worker", worker.cli)
        ),
        commands=table(("command", "exit code"), *_commands(ldp.cli.cli), *_commands(worker.cli.cli)),
        verdicts=table(
            ("verdict of `audit`", "exit code"), *((name, str(code)) for name, code in EXIT_CODES.items())
        ),
        reasons=table(("reason", "message"), *((f"`{reason}`", text) for reason, text in MESSAGES.items())),
        http=table(("status", "cause", "messages"), *_http()),
    )


def _codes(command: str, package: object) -> Iterator[tuple[str, str, str]]:
    """Yields the exit codes that the docstring of a command package lists."""
    _, _, listed = " ".join((inspect.getdoc(package) or "").split()).partition("Exit codes: ")
    for one in listed.removesuffix(".").split("; "):
        code, _, meaning = one.partition(" ")
        yield f"`{command}`", code, meaning


def _commands(group: click.Group) -> Iterator[tuple[str, str]]:
    """Yields the sentences about exit codes in the help of each command."""
    for name, command in sorted(group.commands.items()):
        texts = [part for part in (command.help or "").split("\n\n") if "\b" not in part]
        texts += [f"`{one.opts[0]}`: {one.help}" for one in command.params if isinstance(one, click.Option)]
        sentences = [" ".join(each.split()) for text in texts for each in re.split(r"(?<=\.)\s", text)]
        if found := [each for each in sentences if _EXIT.search(each)]:
            yield f"`{'ldp' if group is ldp.cli.cli else 'ldp-worker'} {name}`", " ".join(found)


def _http() -> Iterator[tuple[str, str, str]]:
    """Yields each HTTP error status with its causes and literal messages."""
    messages: dict[int, set[str]] = {}
    for path in _HTTP.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            status = max([*map(_status, call.args), _EXCEPTIONS.get(ast.unparse(call.func), 0)])
            if status >= HTTPStatus.BAD_REQUEST:
                messages.setdefault(status, set()).update(_texts(call.args, tree))
    assert messages.keys() == _CAUSES.keys(), messages.keys() ^ _CAUSES.keys()
    for status, cause in _CAUSES.items():
        yield (
            f"{status} {HTTPStatus(status).phrase}",
            cause,
            "; ".join(f'"{text}"' for text in sorted(messages[status])),
        )


def _status(argument: ast.expr) -> int:
    match argument:
        case ast.Attribute(value=ast.Name(id="HTTPStatus"), attr=name):
            return HTTPStatus[name]
    return 0


def _texts(arguments: list[ast.expr], tree: ast.Module) -> Iterator[str]:
    """Yields the texts of literal or assigned arguments; … replaces values."""
    for argument in arguments:
        match argument:
            case ast.Constant(value=str(text)):
                yield text.strip()
            case ast.JoinedStr(values=parts):
                texts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts]
                if (text := re.sub("…( ?…)+", "…", "".join(texts)).strip()) != "…":
                    yield text
            case ast.Name(id=name):
                given = [
                    node.value
                    for node in ast.walk(tree)
                    if isinstance(node, ast.Assign)
                    and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
                ]
                yield from _texts([one for one in given if not isinstance(one, ast.Name)], tree)
