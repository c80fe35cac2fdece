"""The description of the API."""

import json
from importlib.util import find_spec

from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.openapi import describe
from storagegate.console.operations import OPERATIONS


def _isThere(handler: str) -> bool:
    return find_spec(f"storagegate.console.{handler.partition(':')[0]}") is not None


class DescribeTests(SynchronousTestCase):
    """The document."""

    def test_complete(self) -> None:
        """Each operation is described, and each reference leads to a schema."""
        rows = [each for each in OPERATIONS if _isThere(each.handler)]
        document = describe(rows)
        text = json.dumps(document)
        for operation in rows:
            found = document["paths"]["/" + operation.path][operation.method.lower()]
            self.assertEqual(found["operationId"], operation.name)
            named = {each["name"] for each in found["parameters"] if each["in"] == "path"}
            self.assertEqual({f"{{{name}}}" for name in named} - set(operation.segments), set())
        for part in text.split('"#/components/schemas/')[1:]:
            self.assertIn(part.partition('"')[0], document["components"]["schemas"])
        listing = document["paths"]["/buckets/{bucket}/objects"]["get"]["parameters"]
        names = {each["name"] for each in listing}
        self.assertEqual(names, {"bucket", "prefix", "delimiter", "after", "limit"})
