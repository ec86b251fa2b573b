"""Pages of the command lines, from their click commands."""

import inspect
from collections.abc import Collection, Iterator

import click

import ldp.cli
import worker.cli
from docs.generate.markdown import fill, table

_COMMON = {"--config", "--help"}
"""Options that a page describes only once, for all commands."""


_ANALYSIS = {"audit-client", "ledger", "plan"}
"""Commands of `ldp` that neither make nor count reports."""


def ldp_page() -> str:
    """Returns the page of the commands of `ldp` that make and count reports."""
    return _page("cli-ldp.md", ldp.cli.cli, "ldp", {*ldp.cli.cli.commands} - _ANALYSIS)


def analysis_page() -> str:
    """Returns the page of the other commands of `ldp`."""
    return _page("cli-ldp-analysis.md", ldp.cli.cli, "ldp", _ANALYSIS)


def worker_page() -> str:
    """Returns the page of `ldp-worker`."""
    return _page("cli-ldp-worker.md", worker.cli.cli, "ldp-worker", worker.cli.cli.commands)


def _page(name: str, group: click.Group, program: str, commands: Collection[str]) -> str:
    context = click.Context(group, info_name=program)
    return fill(name, commands="\n\n".join(_sections(group, context, commands)))


def _sections(group: click.Group, context: click.Context, commands: Collection[str]) -> Iterator[str]:
    """Yields the section of each of these commands of a group."""
    for name in filter(commands.__contains__, group.list_commands(context)):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, context, name)
        usage = " ".join([inner.command_path, *command.collect_usage_pieces(inner)])
        yield f"## {inner.command_path}\n\n```text\n{usage}\n```\n\n{_help(command)}"
        options = [each for each in command.params if isinstance(each, click.Option)]
        rows = [_row(each, inner) for each in options if not each.hidden and _COMMON.isdisjoint(each.opts)]
        if rows:
            yield table(("option", "default", "description"), *rows)
        if isinstance(command, click.Group):
            yield from _sections(command, inner, command.commands)


def _help(command: click.Command) -> str:
    r"""Returns the help of a command; a paragraph after `\b` keeps its lines."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        f"```text\n{text.removeprefix(chr(8)).strip(chr(10))}\n```" if text.startswith("\b") else text
        for text in paragraphs
    )


def _row(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    """Returns the names, the default and the description of an option."""
    record, extra = option.get_help_record(context), option.get_help_extra(context)
    assert record is not None
    shown = extra.get("default") or ("required" if "required" in extra else "")
    names = [f"environment variable `{name}`" for name in extra.get("envvars", ())]
    limits = [f"range `{extra['range']}`"] if "range" in extra else []
    more = f" ({'; '.join(names + limits)})" if names + limits else ""
    return f"`{record[0]}`", shown, f"{option.help or ''}{more}"
