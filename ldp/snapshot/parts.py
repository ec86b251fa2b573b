"""Names of a stream's parts: its documents and its segments.

A part has its own head, bodies and identity. Its name replaces the stream's name in keys and messages. The characters @
and : cannot be in a stream's name, so readers of the keys ``colours/…`` never read parts.
"""

import re

from ldp.segments import as_segment

STREAM = r"[A-Za-z0-9._-]{1,200}"
_DOCUMENT = "[0-9a-f]{8}"
NAME = f"{STREAM}(@{_DOCUMENT}|(:[A-Za-z0-9._-]{{1,32}})+)?"  # Name of a stream or of a part


def part_of(stream: str, *, document: str | None = None, segment: str | None = None) -> str:
    """Returns the name of the part of a document or of a segment.

    Args:
        stream: the stream's name.
        document: the fingerprint, 8 hexadecimal digits.
        segment: the segment, with levels joined by colons.

    Raises:
        ValueError: an invalid fingerprint or segment, both, or neither.

    Example:
        >>> part_of("colours", document="9f86d081"), part_of("colours", segment="US:4.3")
        ('colours@9f86d081', 'colours:US:4.3')
    """
    if (document is None) == (segment is None):
        raise ValueError(f"document {document!r} and segment {segment!r} given; allowed is one of them")
    if document is not None:
        if not re.fullmatch(_DOCUMENT, document):
            raise ValueError(f"the document is {document!r}; allowed are 8 hexadecimal digits")
        return f"{stream}@{document}"
    return f"{stream}:{as_segment('the segment', segment)}"


def whole_of(name: str) -> str:
    """Returns the stream of a part, or the name itself.

    Example:
        >>> whole_of("colours:US:4.3"), whole_of("colours")
        ('colours', 'colours')
    """
    return re.split("[@:]", name, maxsplit=1)[0]


def domain_of(name: str) -> str:
    """Returns the key of a stream's or a part's labels.

    A document has its own labels. The labels of a segment are the first labels of the stream.

    Example:
        >>> domain_of("colours@9f86d081"), domain_of("colours:DE")
        ('colours@9f86d081/domain', 'colours/domain')
    """
    return f"{whole_of(name) if ':' in name else name}/domain"
