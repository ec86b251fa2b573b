# /// script
# requires-python = ">=3.11"
# dependencies = ["ldp-worker"]
# ///
"""A device that reports values, keeps frames offline, and packs them.

The program needs only the standard library. The stream's operator provides the document.
"""

from ldp.client import Client

DOCUMENT = {
    "protocol": "olh",
    "epsilon": "1/1",
    "domain_size": 3,
    "g": 4,
    "hash": "mul32",
    "labels": ["red", "green", "blue"],
}

client = Client(DOCUMENT)
kept = [client.report(value) for value in ("green", "green", "red")]  # keep reports, not values
(sent,) = client.pack(kept, most_reports=100)  # the operator's limit of reports per record

print("three frames of", len(kept[0]), "bytes each")
print("one frame of", len(sent), "bytes, which begins with", sent[:5].hex())
