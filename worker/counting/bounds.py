"""Bounds of the counts of a stream with several documents or segments.

The worker refuses a configuration or a new rule beyond a bound. Recorded documents and segments are included.
"""

from collections.abc import Collection, Iterable

from ldp.frames import Decodable
from ldp.segments import Segments
from worker.counting.windows import Windowing

MOST_DOCUMENTS = 16
"""Maximum number of documents of a stream, live and retired."""
MOST_SEGMENTS = 256
"""Maximum number of segments of a stream, live and retired."""
MOST_PANES = 4096
"""Maximum number of panes × documents of a partition; the metadata of each commit lists them."""
MOST_BYTES = 1 << 30
"""Maximum bytes of a partition's counts, which a claim loads at once."""
MOST_BLOB_BYTES = 64 << 20
"""Maximum bytes of the counts of a pane and a document, with all segments."""


def cell_bytes(documents: Iterable[Decodable], segments: Collection[str]) -> dict[str, int]:
    """Returns the maximum bytes of a document's counts in a pane.

    Example:
        >>> import ldp
        >>> plain, apart = (ldp.Stream("s", ldp.OUE("1", 1024), segment=key) for key in (None, "country"))
        >>> [*cell_bytes([plain, apart], ["DE", "US"]).values()]  # "", ~, DE, DE:~, US and US:~
        [8192, 49152]
    """
    most = len(Segments(segments).cells)
    return {
        each.fingerprint.hex(): 8 * each.oracle.state_size * (1 if each.segment is None else most)
        for each in documents
    }


def excess(
    documents: Collection[Decodable], segments: Collection[str], windowing: Windowing | None
) -> str | None:
    """Returns the bound that a stream exceeds, with the numbers, or None.

    Args:
        documents: live and retired ones, recorded and configured.
        segments: names, live and retired, recorded and configured.
        windowing: the windows, or None.

    Example:
        >>> import ldp
        >>> large = ldp.Stream("s", ldp.OUE("1", domain_size=1 << 20), segment="country")
        >>> excess([large], ["DE", "FR", "IT", "US"], None)
        'a pane of document fb72883b could have 83,886,080 bytes of counts; at most 67,108,864 are allowed'
    """
    if len(documents) > MOST_DOCUMENTS:
        return f"{len(documents):,} documents, live and retired; at most {MOST_DOCUMENTS} are allowed"
    if len(segments) > MOST_SEGMENTS:
        return f"{len(segments):,} segments, live and retired; at most {MOST_SEGMENTS} are allowed"
    if len(documents) < 2 and not segments:
        return None  # the bounds of windows suffice
    panes = 0 if windowing is None else windowing.most_panes
    if panes * len(documents) > MOST_PANES:
        return f"{panes:,} panes of each of {len(documents)} documents; at most {MOST_PANES:,} in total are allowed"
    sizes = cell_bytes(documents, segments)
    for fingerprint, size in sizes.items():
        if size > MOST_BLOB_BYTES:
            what = f"a pane of document {fingerprint} could have {size:,} bytes of counts"
            return f"{what}; at most {MOST_BLOB_BYTES:,} are allowed"
    if (total := (1 + panes) * sum(sizes.values())) > MOST_BYTES:
        what = f"a partition could have {total:,} bytes of counts, with {panes:,} panes"
        return f"{what}; at most {MOST_BYTES:,} bytes are allowed"
    return None
