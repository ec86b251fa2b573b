"""The pages about the package: their examples run, and they cover every protocol."""

import doctest
import re

import pytest

from ldp.oracles import PROTOCOLS
from tests.support.docs import NAMES, blocks, page

PAGES = {name: page(name) for name in NAMES if blocks(page(name), "pycon")}


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = "\n".join(blocks(PAGES[name], "pycon"))
    test = doctest.DocTestParser().get_doctest(examples, {}, name, None, 0)
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    results = runner.run(test, out=said.append)
    assert results.attempted > 1
    assert not results.failed, "".join(said)


def test_the_pages_define_every_protocol():
    coins, wire = page("reference/wire-format-coins"), page("reference/wire-format")
    for name, protocols in PROTOCOLS.items():
        assert f"**`{name}`**" in coins
        for protocol in protocols:
            assert any(f"`ldp.{protocol.__name__}`" in text for text in PAGES.values())
            assert all(re.search(rf"\| (`\w+`, )?`{key}`(, `\w+`)? \|", wire) for key in protocol.exact)
            assert all(f"| `{key}` |" in wire for key in protocol.own_parameters)
    assert set(re.findall(r"^\*\*`(\w+)`\*\*", coins, re.MULTILINE)) == set(PROTOCOLS)
