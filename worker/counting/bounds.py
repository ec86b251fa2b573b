"""Bounds of the counts of a stream with several documents or segments.

The worker refuses a configuration or a new rule beyond a bound. Recorded documents and segments are included.
"""

from collections.abc import Collection, Mapping

from ldp.oracles import Oracle
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


def excess(
    documents: Mapping[str, Oracle],
    segmented: Collection[str],
    segments: Collection[str],
    windowing: Windowing | None,
) -> str | None:
    """Returns the bound that a stream exceeds, with the numbers, or None.

    Args:
        documents: fingerprint -> protocol, live and retired, recorded and configured.
        segmented: the fingerprints of documents whose reports name a segment.
        segments: names, live and retired, recorded and configured.
        windowing: the windows, or None.

    Example:
        >>> import ldp
        >>> large = ldp.OUE("1", domain_size=1 << 20)
        >>> excess({"9f86d081": large}, ["9f86d081"], ["DE", "FR", "IT", "US"], None)
        'a pane of document 9f86d081 could have 10 cells of 8,388,608 bytes; at most 67,108,864 bytes are allowed'
        >>> excess({"9f86d081": large}, [], [], None)
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
    total, most = 0, len(Segments(segments).cells)
    for fingerprint, oracle in documents.items():
        cells, size = most if fingerprint in segmented else 1, 8 * oracle.state_size
        if cells * size > MOST_BLOB_BYTES:
            what = f"a pane of document {fingerprint} could have {cells} cells of {size:,} bytes"
            return f"{what}; at most {MOST_BLOB_BYTES:,} bytes are allowed"
        total += (1 + panes) * cells * size
    if total > MOST_BYTES:
        what = f"a partition could have {total:,} bytes of counts, with {panes:,} panes"
        return f"{what}; at most {MOST_BYTES:,} bytes are allowed"
    return None
