"""The package's page: its examples run, it covers every protocol."""

import doctest
import re
from pathlib import Path

import ldp
from ldp.oracles import PROTOCOLS

PAGE = Path(ldp.__file__).with_name("README.md").read_text(encoding="utf-8")


def test_the_examples_run():
    blocks = re.findall(r"^```pycon\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    others = re.findall(
        r"^```(?:sql|sh|python)$", PAGE, re.MULTILINE
    )  # tests/unit/ldp/test_counts.py runs those in SQL, tests/integration/engines/test_engines.py those on engines
    assert len(blocks) + len(others) == PAGE.count("```") // 2
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "ldp/README.md", None, 0)
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    results = runner.run(test, out=said.append)
    assert results.attempted > 30
    assert not results.failed, "".join(said)


def test_it_defines_every_protocol():
    wire = PAGE.partition("## The wire")[2]
    for name, protocols in PROTOCOLS.items():
        assert f"**`{name}`**" in wire  # its coins
        for protocol in protocols:
            assert f"`ldp.{protocol.__name__}`" in PAGE
            assert all(re.search(rf"\| (`\w+`, )?`{key}`(, `\w+`)? \|", wire) for key in protocol.exact)
            assert all(f"| `{key}` |" in wire for key in protocol.own_parameters)
    assert set(re.findall(r"^\*\*`(\w+)`\*\*", wire, re.MULTILINE)) == set(PROTOCOLS)
