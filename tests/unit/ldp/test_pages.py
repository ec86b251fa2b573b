"""The pages about the package: their examples run, and they cover every protocol."""

import doctest
import re

import pytest

from ldp.oracles import PROTOCOLS
from tests.support.docs import page

PAGES = {
    name: page(name)
    for name in (
        "explanation/statistics",
        "guides/browsers-and-explicit-channels",
        "guides/send-reports",
        "reference/state-files",
        "reference/wire-format",
        "reference/wire-format-coins",
        "tutorials/files-only",
        "tutorials/notebook",
    )
}


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGES[name]
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    others = re.findall(
        r"^```(?:sql|sh|python|toml|text)$", text, re.MULTILINE
    )  # tests/unit/ldp/test_counts.py runs those in SQL, tests/integration/engines/test_engines.py those on engines
    assert len(blocks) + len(others) == text.count("```") // 2
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, None, 0)
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    results = runner.run(test, out=said.append)
    assert results.attempted > 1
    assert not results.failed, "".join(said)


def test_the_pages_define_every_protocol():
    coins, wire = page("reference/wire-format-coins"), page("reference/wire-format")
    texts = [*PAGES.values(), page("guides/choose-a-protocol")]
    for name, protocols in PROTOCOLS.items():
        assert f"**`{name}`**" in coins
        for protocol in protocols:
            assert any(f"`ldp.{protocol.__name__}`" in text for text in texts)
            assert all(re.search(rf"\| (`\w+`, )?`{key}`(, `\w+`)? \|", wire) for key in protocol.exact)
            assert all(f"| `{key}` |" in wire for key in protocol.own_parameters)
    assert set(re.findall(r"^\*\*`(\w+)`\*\*", coins, re.MULTILINE)) == set(PROTOCOLS)
