"""A device: it reports its own value, keeps frames while it is offline, and sends them packed.

It needs the standard library alone. A document comes from the stream's operator.
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
kept = [client.report(value) for value in ("green", "green", "red")]  # never the values
(sent,) = client.pack(kept, most_reports=100)  # so many the operator takes in a record

print("three frames of", len(kept[0]), "bytes each")
print("one frame of", len(sent), "bytes, which begins with", sent[:5].hex())
