"""The description of the API."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.api import ConsoleAPI
from storagegate.console.openapi import describe
from storagegate.console.operations import OPERATIONS, APIOperation
from tests.support.selection import long

try:
    from openapi_spec_validator import OpenAPIV31SpecValidator
except ImportError:
    OpenAPIV31SpecValidator = None


async def nobody(req: Any, operation: APIOperation) -> None:
    """Authenticate no request."""


@long("imports all operations")
class DescribeTests(SynchronousTestCase):
    """The document."""

    def setUp(self) -> None:
        """Describe the API."""
        services: Any = None
        self.document = describe(ConsoleAPI(services, nobody).router)

    def operation(self, path: str, verb: str) -> Any:
        """Return an operation."""
        return self.document["paths"][path][verb]

    def test_valid(self) -> None:
        """It is valid, by the schema of OpenAPI 3.1."""
        if OpenAPIV31SpecValidator is None:
            self.skipTest("openapi-spec-validator is not installed")
        OpenAPIV31SpecValidator(self.document).validate()

    def test_complete(self) -> None:
        """Each operation is described, and each reference leads to a schema."""
        text = json.dumps(self.document)
        described = sum(len(each) for each in self.document["paths"].values())
        self.assertEqual(described, len(OPERATIONS))
        for operation in OPERATIONS:
            found = self.operation("/" + operation.path, operation.method.lower())
            self.assertEqual(found["operationId"], operation.name)
            self.assertEqual(found["summary"], operation.summary)
            self.assertEqual(found["x-role"], operation.least)
            self.assertEqual(bool(found["security"]), bool(operation.least))
            named = {each["name"] for each in found["parameters"] if each["in"] == "path"}
            segments = {f"{{{name}}}" for name in named}
            self.assertEqual(segments - set(operation.path.split("/")), set())
            self.assertIn("default", found["responses"])
        for part in text.split('"#/components/schemas/')[1:]:
            self.assertIn(part.partition('"')[0], self.document["components"]["schemas"])
        listing = self.operation("/buckets/{bucket}/objects", "get")["parameters"]
        names = {each["name"] for each in listing}
        self.assertEqual(names, {"bucket", "prefix", "delimiter", "after", "limit"})

    def test_media(self) -> None:
        """Bytes, archives, events and lines have their media types; all else is JSON."""
        of = lambda path, verb: list(  # noqa: E731
            self.operation(path, verb)["responses"]["200"]["content"]
        )
        json, stream = "application/json", "application/octet-stream"
        self.assertEqual(of("/buckets/{bucket}/objects/{key}", "get"), [json, stream])
        self.assertEqual(of("/bytes/{ticket}", "get"), [stream])
        self.assertEqual(of("/zip/{ticket}", "get"), ["application/zip"])
        self.assertEqual(of("/events", "get"), ["text/event-stream"])
        self.assertEqual(of("/gateway/calls", "post"), ["application/x-ndjson"])
        self.assertEqual(of("/buckets/{bucket}/settings/{name}", "get"), [json])
        stored = self.operation("/buckets/{bucket}/objects/{key}", "put")
        self.assertEqual(stored["requestBody"]["content"], {stream: {}})
        removed = self.operation("/keys/{key}", "delete")["responses"]["204"]
        self.assertEqual(removed, {"description": "Success"})

    def test_types(self) -> None:
        """A union has both members, and nested types are components of their own."""
        session = self.operation("/session", "get")["responses"]["200"]["content"]
        reference = "#/components/schemas/{}".format
        self.assertEqual(
            session["application/json"]["schema"],
            {"anyOf": [{"$ref": reference("SignedIn")}, {"$ref": reference("NotSignedIn")}]},
        )
        page = self.document["components"]["schemas"]["SessionPage"]["properties"]
        self.assertEqual(page["items"]["items"], {"$ref": reference("ListedSession")})
