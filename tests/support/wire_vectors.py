"""The vectors of wire version 1 in ``tests/vectors/wire-1``, by stream."""

import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "vectors" / "wire-1"


def streams(kind):
    """Returns the streams of a folder, each with its good and then its bad records."""
    read = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (FOLDER / kind).glob("*.json")
    }
    assert all(said["name"] == name and said["version"] == 1 for name, said in read.items())
    bad = {name.removeprefix("bad_"): read.pop(name) for name in sorted(read) if name.startswith("bad_")}
    for name, rejected in bad.items():
        good = read[name]
        same = {"document", "fingerprint", "most_reports"}
        assert {key: good.get(key) for key in same} == {key: rejected.get(key) for key in same}
        assert all("reason" in record for record in rejected["records"])
        assert all("reports" in record for record in good["records"])
        good["records"] += rejected["records"]
    return [read[name] for name in sorted(read)]


def packs():
    """Returns the cases of packing: reports per frame under the limits of records."""
    return json.loads((FOLDER / "packs.json").read_text(encoding="utf-8"))["packs"]
