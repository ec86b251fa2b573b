"""Prose linter: checks the repository's texts against ``rules.toml``.

Run ``python -m docs.prose [PATH ...]``. Without an option it prints the errors of all paths.
"""

import argparse
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from docs.prose.texts import CODE, DATA, DOCUMENT, FEWEST_WORDS, MESSAGE, PRODUCT, Text, texts_of

ROOT = Path(__file__).parents[2]
LIMITS: dict[str, int] = DATA["limits"]
KINDS = {DOCUMENT: "documents", CODE: "docstrings and comments", MESSAGE: "messages"}
_END = re.compile(r"(?<![A-Z]\.)(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<=[.!?…])[\"')”]*\s+(?=[^a-z\s])")
_WORD = re.compile(r"[\w’'°%/.,·-]*\w[\w’'-]*")


for rule in DATA["rules"]:
    filled = re.sub(r"\{(\w+)\}", lambda m: DATA["macros"].get(m[1], m[0]), rule["pattern"])
    rule["compiled"] = re.compile(filled)


class Finding(NamedTuple):
    """A broken rule: its id, what to write instead, and the place."""

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
    """Yields a finding for each rule that a sentence breaks."""
    for sentence in sentences(text.text):
        for rule in DATA["rules"]:
            found = rule["compiled"].search(sentence) if text.kind in rule.get("kinds", KINDS) else None
            if found and not _excepted(text.path, sentence, rule["id"]):
                excerpt = sentence[max(0, found.start() - 30) : found.end() + 40]
                yield Finding(rule["id"], rule["message"], excerpt)


def errors(text: Text) -> Iterator[Finding]:
    """Yields matched patterns, long sentences and long docstring headlines."""
    yield from matches(text)
    if len(text.headline) > LIMITS["headline"] and text.path.startswith(PRODUCT):
        message = f"at most {LIMITS['headline']} characters in the first line of a docstring"
        yield Finding("headline", message, text.headline)
    for sentence in sentences(text.text) if text.kind == DOCUMENT else ():
        n = words(sentence)
        if n > LIMITS["sentence"] and not _excepted(text.path, sentence, "long-sentence"):
            message = f"at most {LIMITS['sentence']} words, not {n}"
            yield Finding("long-sentence", message, sentence[:80])


def _excepted(path: str, sentence: str, rule: str) -> bool:
    own = (e for e in DATA["exceptions"] if e["path"] == path)
    return any(e.get("text", "") in sentence and e.get("rule", rule) == rule for e in own)


def sources(rev: str | None, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields path and content of tracked files in a revision or working tree."""
    chosen = re.compile("|".join(re.escape(p.rstrip("/")) + "(/|$)" for p in paths))
    skipped = tuple(DATA["skipped"])
    command = ["git", "archive", rev] if rev else ["git", "ls-files", "-z"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    if rev:
        with tarfile.open(fileobj=io.BytesIO(output)) as tar:
            files = {m.name: file.read() for m in tar if (file := tar.extractfile(m))}
    else:
        names = output.decode().rstrip("\0").split("\0")
        files = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    for name, content in files.items():
        if chosen.match(name) and not name.startswith(skipped):
            yield name, content.decode(errors="replace")


def main() -> None:
    """Prints errors or counts; exits with 1 if there are errors."""
    parser = argparse.ArgumentParser(prog="python -m docs.prose", description="Checks the prose.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="by default all tracked files")
    parser.add_argument("--count", action="store_true", help="print matches and lengths by kind")
    parser.add_argument("--top", action="store_true", help="print the most frequent patterns")
    parser.add_argument("--rev", metavar="REV", help="read a git revision instead of the working tree")
    args = parser.parse_args()
    summary = args.count or args.top
    texts = [t for path, source in sources(args.rev, args.paths) for t in texts_of(path, source) if t.text]
    if args.count:
        print(count(texts))
    if args.top:
        tops = Counter(f.rule for t in texts for f in matches(t))
        print("\n".join(f"{n:6} {rule}" for rule, n in tops.most_common()))
    if summary:
        return
    found = [(t, f) for t in texts for f in errors(t)]
    for t, f in found:
        print(f"{t.path}:{t.line}: {f.rule}: {f.message}: …{f.excerpt}…")
    mean = _mean(t for t in texts if t.kind == DOCUMENT)
    if mean > LIMITS["mean"] and not args.paths:
        sys.exit(f"mean sentence of the documents: {mean:.1f} words; at most {LIMITS['mean']} are allowed")
    if found:
        sys.exit(f"{len(found)} errors; docs/contributing/style.md has the rules")


def _mean(texts: Iterable[Text]) -> float:
    """Returns the mean length of sentences of at least `FEWEST_WORDS` words."""
    lengths = [n for t in texts for s in sentences(t.text) if (n := words(s)) >= FEWEST_WORDS]
    return sum(lengths) / max(1, len(lengths))


def count(texts: list[Text]) -> str:
    """Returns a table of matches and sentence lengths, one line per kind."""
    lines = ["kind                        words  matches per 1,000   mean longest long headlines"]
    for kind, name in KINDS.items():
        own = [t for t in texts if t.kind == kind]
        lengths = [words(s) for t in own for s in sentences(t.text)]
        total, found = sum(lengths), sum(1 for t in own for _ in matches(t))
        long = sum(len(t.headline) > LIMITS["headline"] for t in own)
        lines.append(
            f"{name:24} {total:8,} {found:8,} {1000 * found / max(1, total):9.2f} {_mean(own):6.1f} "
            f"{max(lengths, default=0):7} {long:14,}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
