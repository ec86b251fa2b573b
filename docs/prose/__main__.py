"""Prose linter: checks every text of the repository against the rules of ``rules.toml``.

Run ``python -m docs.prose [PATH ...]``. Without an option it prints the errors of the enforced paths.
"""

import argparse
import io
import re
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from docs.prose.texts import CODE, DOCUMENT, FEWEST_WORDS, MESSAGE, Text, texts_of

ROOT = Path(__file__).parents[2]
DATA: dict[str, Any] = tomllib.loads((Path(__file__).parent / "rules.toml").read_text(encoding="utf-8"))
LIMITS: dict[str, int] = DATA["limits"]
KINDS = {DOCUMENT: "documents", CODE: "docstrings and comments", MESSAGE: "messages"}
_END = re.compile(r"(?<![A-Z]\.)(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<=[.!?…])[\"')”]*\s+(?=[^a-z\s])")
_WORD = re.compile(r"[\w’'°%/.,·-]*\w[\w’'-]*")


class Rule(NamedTuple):
    """A pattern to avoid, and what to write instead."""

    id: str
    pattern: re.Pattern[str]
    kinds: frozenset[str]
    message: str


RULES = [
    Rule(
        r["id"],
        re.compile(re.sub(r"\{(\w+)\}", lambda m: DATA["macros"].get(m[1], m[0]), r["pattern"])),
        frozenset(r.get("kinds", KINDS)),
        r["message"],
    )
    for r in DATA["rules"]
]


class Finding(NamedTuple):
    """A place that breaks a rule."""

    text: Text
    rule: str
    message: str
    excerpt: str


def sentences(text: str) -> list[str]:
    """Splits a paragraph into sentences."""
    return [s for s in _END.split(text) if s.strip()]


def words(text: str) -> int:
    """Counts words; a code span is one word."""
    return len(_WORD.findall(text))


def matches(text: Text) -> Iterator[Finding]:
    """Yields the patterns that a text contains."""
    for sentence in sentences(text.text):
        for rule in RULES:
            found = rule.pattern.search(sentence) if text.kind in rule.kinds else None
            if found and not _excepted(text.path, sentence, rule.id):
                excerpt = sentence[max(0, found.start() - 30) : found.end() + 40]
                yield Finding(text, rule.id, rule.message, excerpt)


def errors(text: Text) -> Iterator[Finding]:
    """Yields the patterns of a text, its too long sentences, and its first line if that is too long."""
    yield from matches(text)
    for sentence in sentences(text.text) if text.kind == DOCUMENT else ():
        n = words(sentence)
        if n > LIMITS["sentence"] and not _excepted(text.path, sentence, "long-sentence"):
            yield Finding(
                text, "long-sentence", f"at most {LIMITS['sentence']} words, not {n}", sentence[:80]
            )
    n = len(text.headline)
    if n > LIMITS["headline"] and not text.path.startswith("tests/"):
        message = f"at most {LIMITS['headline']} characters, not {n}"
        yield Finding(text, "headline", message, text.headline)


def _excepted(path: str, sentence: str, rule: str) -> bool:
    own = (e for e in DATA["exceptions"] if e["path"] == path)
    return any(e.get("text", "") in sentence and e.get("rule", rule) == rule for e in own)


def sources(rev: str | None, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the path and content of each tracked file below paths, of the working tree or of a revision."""
    chosen = tuple(p.rstrip("/") for p in paths)

    def wanted(name: str) -> bool:
        return not name.startswith(tuple(DATA["skipped"])) and (
            not chosen or any(name == p or name.startswith(p + "/") for p in chosen)
        )

    if rev:
        archive = subprocess.run(["git", "archive", rev], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if wanted(member.name) and (file := tar.extractfile(member)):
                    yield member.name, file.read().decode(errors="replace")
    else:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(wanted, listed.decode().rstrip("\0").split("\0")):
            if (ROOT / name).is_file():
                yield name, (ROOT / name).read_bytes().decode(errors="replace")


def main() -> int:
    """Prints errors or counts; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.prose", description="Checks the prose.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="by default all enforced ones")
    parser.add_argument("--count", action="store_true", help="print matches and lengths by kind")
    parser.add_argument("--top", action="store_true", help="print the most frequent patterns")
    parser.add_argument("--rev", metavar="REV", help="read a git revision instead of the working tree")
    args = parser.parse_args()
    summary = args.count or args.top
    paths = args.paths or ([] if summary else DATA.get("enforced", []))
    texts = [t for path, source in sources(args.rev, paths) for t in texts_of(path, source) if t.text]
    if args.count:
        print(count(texts))
    if args.top:
        tops = Counter(f.rule for t in texts for f in matches(t))
        print("\n".join(f"{n:6} {rule}" for rule, n in tops.most_common()))
    if summary:
        return 0
    found = [f for t in texts for f in errors(t)]
    for f in found:
        print(f"{f.text.path}:{f.text.line}: {f.rule}: {f.message}: …{f.excerpt}…")
    mean = _mean(t for t in texts if t.kind == DOCUMENT)
    if mean > LIMITS["mean"] and not args.paths:
        print(f"mean sentence of the documents: {mean:.1f} words; at most {LIMITS['mean']} are allowed")
        return 1
    if found:
        print(f"{len(found)} errors; docs/contributing/style.md has the rules")
    return 1 if found else 0


def _mean(texts: Iterable[Text]) -> float:
    """Returns the mean length of sentences; headings, cells and labels of fewer than four words are none."""
    lengths = [n for t in texts for s in sentences(t.text) if (n := words(s)) >= FEWEST_WORDS]
    return sum(lengths) / max(1, len(lengths))


def count(texts: list[Text]) -> str:
    """Returns a table of the matches per 1,000 words and of sentence lengths, a line for each kind."""
    lines = [
        f"{'kind':24} {'words':>8} {'matches':>8} {'per 1,000':>9} {'mean':>6} {'longest':>7} {'long heads':>10}"
    ]
    for kind, name in KINDS.items():
        own = [t for t in texts if t.kind == kind]
        lengths = [words(s) for t in own for s in sentences(t.text)]
        total, found = sum(lengths), sum(1 for t in own for _ in matches(t))
        long = sum(len(t.headline) > LIMITS["headline"] for t in own)
        lines.append(
            f"{name:24} {total:8,} {found:8,} {1000 * found / max(1, total):9.2f} {_mean(own):6.1f} "
            f"{max(lengths, default=0):7} {long:10,}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
