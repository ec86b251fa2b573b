"""Comments in the template of `ldp-worker init`, from the schema."""

import re
import textwrap
from pathlib import Path

from pydantic.fields import FieldInfo

from docs.generate.configuration import kind
from worker.config import schema

PATH = Path(__file__).parents[2] / "worker/config/template.toml"
_TABLES: dict[str, type[schema.Table]] = {
    name: type(field.default) for name, field in schema.File.model_fields.items() if not field.description
} | {
    "": schema.File,
    "gateway.ohttp": schema.Ohttp,
    "streams": schema.StreamTable,
    "streams.queries": schema.QueryTable,
}
_TABLE = re.compile(r"(?:# )?\[+([\w.]+)\]+")
_KEY = re.compile(r"(?:# )?([a-z_]+) = ")


def page() -> str:
    """Returns the template with a comment above each key."""
    lines: list[str] = []
    fields = _TABLES[""].model_fields
    for line in PATH.read_text(encoding="utf-8").splitlines():
        if table := _TABLE.fullmatch(line):
            fields = _TABLES[table[1]].model_fields
        elif key := _KEY.match(line):
            while (
                lines
                and lines[-1].startswith("# ")
                and not _TABLE.match(lines[-1])
                and not _KEY.match(lines[-1])
            ):
                lines.pop()
            lines += _comment(fields[key[1]])
        lines.append(line)
    return "\n".join(lines) + "\n"


def _comment(field: FieldInfo) -> list[str]:
    """Returns a description's first sentence and choices as comment lines."""
    sentence = re.split(r"(?<=\.)\s+(?=[A-Z0-9`])", (field.description or "").strip())[0]
    if (choice := kind("", field)).startswith("`"):
        sentence = f"{sentence[:-1]}: {choice}."
    text = sentence.replace("`", "")
    return textwrap.wrap(
        text, 118, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )
