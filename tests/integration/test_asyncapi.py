"""The AsyncAPI description against the schema of AsyncAPI 3.0, from npm."""

import json

import jsonschema
import pytest

from docs.generate.__main__ import REFERENCE
from tests.support import npm

pytestmark = pytest.mark.integration

PACKAGE = "@asyncapi/specs", "6.11.1"
SHA512 = "A3WBLqAKGoJ2+6FWFtpjBlCQ1oFCcs4GxF7zsIGvNqp/klGUHjlA3aAcZ9XMMpLGE8zPeYDz2x9FmO6DSuKraQ=="


def test_the_description_follows_the_schema_of_asyncapi():
    schema = json.loads(npm.text(*PACKAGE, SHA512, "schemas/3.0.0.json"))
    document = json.loads((REFERENCE / "asyncapi.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(document)
    for name in document["channels"]:
        document["channels"][name]["bindings"]["kafka"]["retention"] = 1
        assert not validator.is_valid(document)
        del document["channels"][name]["bindings"]["kafka"]["retention"]
    del document["operations"]["countReports"]["channel"]
    assert not validator.is_valid(document)
