"""Documents of a configured stream: inline, or from files."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ldp
from ldp import files
from ldp.arguments import as_json
from ldp.oracles import PROTOCOLS, parameters_of
from ldp.privacy.declaration import Declaration
from worker.config.faults import ConfigError, key_in, reason
from worker.config.redaction import is_showable, said, shown_path
from worker.config.schema import StreamTable

_INLINE = {"protocol", "epsilon", "domain_size", "labels", "privacy", "segment"}.union(
    *map(parameters_of, PROTOCOLS)
)
"""Keys of a stream's only document."""


def fleet_of(table: StreamTable, key: str, folder: Path) -> ldp.Fleet:
    """Returns the documents of a stream, newest first; raises ConfigError.

    The live documents come first, then the retired ones.
    """
    if table.documents is None:
        if table.retired:
            raise ConfigError(
                f"{key}.retired: given without documents; write the live documents to files, too"
            )
        return ldp.Fleet((_inline(table, key, folder),))
    if both := sorted(_INLINE & table.model_fields_set):
        raise ConfigError(f"{key}.{both[0]}: given with documents; allowed is one of both")
    return from_files(table.name, table.documents, table.retired, key, folder)


def from_files(name: str, live: Sequence[Path], retired: Sequence[Path], key: str, folder: Path) -> ldp.Fleet:
    """Returns the documents in files; raises ConfigError.

    A file has a document as ``ldp-worker document`` prints it.
    """
    listed = [("documents", live), ("retired", retired)]
    places = {f"{key}.{where}[{i}]": path for where, paths in listed for i, path in enumerate(paths)}
    found = {place: read_document(name, folder / path, place) for place, path in places.items()}
    first: dict[bytes, str] = {}
    for place, stream in found.items():
        if (before := first.setdefault(stream.fingerprint, place)) != place:
            where = before.removeprefix(f"{key}.")
            raise ConfigError(
                f"{place}: its fingerprint {stream.fingerprint.hex()} is that of {where}; list a document once, in"
                " documents or retired. Change one of two documents, for example the order of its labels"
            )
    streams = tuple(found.values())
    gone = frozenset(stream.fingerprint for stream in streams[len(live) :])
    try:
        return ldp.Fleet(streams, gone)
    except ValueError as error:
        raise ConfigError(f"{key}.documents: {error}") from None


def read_document(name: str, path: Path, place: str) -> ldp.Stream:
    """Returns the document in a file; raises ConfigError with the place."""
    where = f"{place}: {shown_path(path)}"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{where} cannot be read ({reason(error)})") from None
    try:
        document = as_json(text)
        if isinstance(document, dict) and isinstance(document.get("labels"), str):
            raise ValueError("it has the SHA-256 of the labels; a document with its labels is needed")
        return ldp.Stream.from_document(name, document)
    except (TypeError, ValueError) as error:
        what = str(error).removeprefix(f"stream {name}: ")
        raise ConfigError(f"{where} is not a document ({what}); ldp-worker document prints one") from None


def _inline(table: StreamTable, key: str, folder: Path) -> ldp.Stream:
    """Returns the document in the keys of a stream's table."""
    if table.protocol is None:
        raise ConfigError(f"{key}.protocol: {said(key, None)} given; it is needed, or documents")
    labels, declared = _labels(table, key, folder), _declared(table, key)
    size = table.domain_size if table.domain_size is not None else len(labels or ())
    if not size:
        given = "nothing" if table.domain_size is None else "0"
        raise ConfigError(
            f"{key}.domain_size: {given} given; a whole number of at least 1 is needed, or labels"
        )
    parameters = _parameters(table, table.protocol, key)
    try:
        oracle = ldp.oracle(table.protocol, table.epsilon, size, **parameters)
    except (TypeError, ValueError) as error:
        what = _redacted(error, (table.protocol, table.epsilon, *parameters.values()))
        raise ConfigError(f"{key}.{key_in(what, table.model_fields_set, 'protocol')}: {what}") from None
    try:
        return ldp.Stream(
            table.name, oracle, None if labels is None else tuple(labels), declared, table.segment
        )
    except ValueError as error:
        what = str(error).removeprefix(f"stream {table.name}: ")
        raise ConfigError(f"{key}.{key_in(what, ('segment',), 'labels')}: {what}") from None


def _parameters(table: StreamTable, protocol: str, key: str) -> dict[str, Any]:
    known = protocol in PROTOCOLS
    every = sorted({name for each in PROTOCOLS for name in parameters_of(each)})
    parameters = {name: value for name in every if (value := getattr(table, name)) is not None}
    takes = parameters_of(protocol) if known else every
    for name, value in parameters.items():
        if name not in takes:
            allowed = f"{protocol} takes {' and '.join(takes) or 'no parameters of its own'}"
            raise ConfigError(f"{key}.{name}: {value!r} given; {allowed}")
    if known and "epsilon" in PROTOCOLS[protocol][0].exact and table.epsilon is None:
        raise ConfigError(f"{key}.epsilon: no value given; {protocol} needs one")
    return parameters


def _declared(table: StreamTable, key: str) -> Declaration | None:
    try:
        return None if table.privacy is None else Declaration.from_document(table.privacy)
    except (TypeError, ValueError) as error:
        texts = itertools.chain(*(table.privacy or {}).items())
        raise ConfigError(f"{key}.privacy: {_redacted(error, texts)}") from None


def _redacted(error: Exception, given: Iterable[object]) -> str:
    """Returns an error's text without given texts that can be secrets."""
    what = str(error)
    for text in map(str, given):
        if not is_showable(text):
            what = what.replace(repr(text), "a text").replace(text, "a text")
    return what


def _labels(table: StreamTable, key: str, folder: Path) -> list[str] | None:
    if not isinstance(table.labels, Path):
        return table.labels
    path = folder / table.labels
    try:
        return files.labels(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}.labels: {shown_path(path)} cannot be read ({reason(error)})") from None
