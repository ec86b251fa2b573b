"""The configuration that `ldp-worker init` writes: every key is in it, with the default that it has."""

import re
import tomllib
from importlib.resources import files

import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from worker.cli import cli
from worker.config import load, parse
from worker.config.schema import File, Ohttp, QueryTable, StreamTable

TEMPLATE = files("worker.config").joinpath("template.toml").read_text(encoding="utf-8")
WHOLE = tomllib.loads(re.sub(r"(?m)^# (\[\[|[a-z_]+ = )", r"\1", TEMPLATE))
"""The template with every key set."""


def tables():
    for name, field in File.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield field.annotation, WHOLE[name]
    yield File, WHOLE
    yield Ohttp, WHOLE["gateway"]["ohttp"]
    yield StreamTable, WHOLE["streams"][0]
    yield QueryTable, WHOLE["streams"][0]["queries"][0]


@pytest.mark.parametrize(("model", "said"), list(tables()), ids=lambda each: getattr(each, "__name__", ""))
def test_the_template_has_every_key_with_its_default(model, said):
    assert said.keys() == model.model_fields.keys()
    for name, field in model.model_fields.items():
        default = field.default
        if default not in (None, PydanticUndefined, []) and not isinstance(default, BaseModel):
            assert said[name] == default, name
        elif isinstance(said[name], str) and "password" in name:
            assert said[name] == ""


def test_the_template_is_a_configuration_of_defaults():
    config, least = parse(TEMPLATE), parse(re.sub(r"(?m)^#.*", "", TEMPLATE))
    assert config == least
    assert config.streams[0].stream.name == "colours"


def test_the_template_is_written_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = CliRunner().invoke(cli, ["init"])
    assert (first.exit_code, (tmp_path / "worker.toml").read_text()) == (0, TEMPLATE)
    assert load(tmp_path / "worker.toml", {}) == parse(TEMPLATE)
    (tmp_path / "worker.toml").write_text("mine")
    again = CliRunner().invoke(cli, ["init"])
    assert again.exit_code == 2
    assert "worker.toml: exists already" in again.output
    assert (tmp_path / "worker.toml").read_text() == "mine"
    nowhere = CliRunner().invoke(cli, ["init", "no/folder.toml"])
    assert nowhere.exit_code == 2
    assert "cannot be written (No such file or directory)" in nowhere.output
