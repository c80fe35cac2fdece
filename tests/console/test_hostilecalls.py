"""Thousands of calls made from the API's own description: none is an error of the server."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, quote_from_bytes

from attrs import frozen

from tests.console.fixture import API, ConsoleCase
from tests.support.clients import ROOT
from tests.support.selection import long

CALLS = 8000

_SLOW_OR_ENDLESS = {"runDoctor", "streamEvents", "signIn", "signOut", "reloadConfiguration"}

_SEGMENTS = (
    "",
    ".",
    "..",
    "~.",
    "~..",
    "%",
    "%zz",
    "%ff",
    "%00",
    "%2F",
    "%C3%A9",
    "a%2Fb",
    "-1",
    "0",
    "9" * 40,
    "tags",
    "lifecycle",
    "policy",
    "retention",
    "x" * 1100,
    "~",
    "*",
    ":x",
    "{id}",
)

_TEXTS = (
    "",
    "-1",
    "0",
    "1",
    "1e2",
    "1.0",
    "007",
    "+1",
    " 1",
    "9" * 40,
    "1e999",
    "nan",
    "inf",
    "true",
    "TRUE",
    "yes",
    "null",
    "\0",
    "\u202e",
    "é",
    "a/b",
    "[]",
    "{}",
    "%",
    "x" * 3000,
)

_WIRES = (
    b"",
    b" ",
    b"{",
    b"[",
    b"nul",
    b'"\\ud800"',
    b"\xff\xfe",
    b"[" * 4000,
    b'{"a":' * 2000,
    b"1e999",
    b"NaN",
    b"[]",
    b"7",
    b"null",
    b'"x"',
    b"\0" * 40,
    b"\xef\xbb\xbf{}",
    b"{}{}",
    b'{"a":1,"a":2}',
    b"{" + b'"' + b"k" * 2000 + b'":1}',
)

_TYPES = ("application/json", "text/plain", "application/x-www-form-urlencoded", "*", "", None)


@frozen
class HostileCall:
    """A request: the method, the target below the API, header fields and the body."""

    operation: str
    method: str
    target: str
    fields: dict[str, str]
    body: bytes | None


def hostileCalls(document: Any, count: int) -> Iterator[HostileCall]:
    """Make calls of the operations of a document, wrong in one or more of their parts."""
    chance = random.Random(29)
    operations = [
        (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if operation["operationId"] not in _SLOW_OR_ENDLESS
    ]
    for number in range(count):
        path, method, operation = operations[number % len(operations)]
        query = []
        target = path
        for each in operation["parameters"]:
            if each["in"] == "path":
                segment = chance.choice(_SEGMENTS)
                if chance.random() < 0.3:
                    segment = quote_from_bytes(chance.randbytes(6), safe="")
                target = target.replace("{" + each["name"] + "}", segment)
            elif chance.random() < 0.5:
                query.append(f"{each['name']}={quote(chance.choice(_TEXTS), safe='')}")
        query += ["unknown=1"] * (chance.random() < 0.1) + query[:1] * (chance.random() < 0.1)
        method = method.upper() if chance.random() < 0.9 else chance.choice(("HEAD", "OPTIONS"))
        if chance.random() < 0.05:
            method = chance.choice(("GET", "PUT", "POST", "DELETE", "PATCH"))
        fields = {}
        body = None
        if method in ("PUT", "POST", "PATCH", "DELETE"):
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            body = _body(chance, schema, document)
            kind = chance.choice(_TYPES)
            if kind is not None:
                fields["Content-Type"] = kind
        if query:
            target += "?" + "&".join(query)
        yield HostileCall(operation["operationId"], method, target.lstrip("/"), fields, body)


def _body(chance: random.Random, schema: Any, document: Any) -> bytes:
    if chance.random() < 0.3:
        return chance.choice(_WIRES)
    return json.dumps(_value(chance, schema, document, 0)).encode()


def _value(chance: random.Random, schema: Any, document: Any, depth: int) -> Any:
    """Make a value of a schema, or one of another type."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if chance.random() < 0.1 or depth > 4:
        return chance.choice((None, True, -1, 1 << 70, 1.5, "x", [], {}, [None], {"a": {}}, "\0"))
    if "anyOf" in schema:
        return _value(chance, chance.choice(schema["anyOf"]), document, depth + 1)
    match schema.get("type"):
        case "object":
            required = schema.get("required", ())
            found = {
                name: _value(chance, part, document, depth + 1)
                for name, part in schema.get("properties", {}).items()
                if (name in required or chance.random() < 0.5) and chance.random() < 0.95
            }
            return found | ({"unknown": 1} if chance.random() < 0.1 else {})
        case "array":
            items = schema.get("items") or {}
            return [_value(chance, items, document, depth + 1) for _ in range(chance.randrange(3))]
        case "integer":
            return chance.choice((-1, 0, 1, 1000, 1 << 53, 1 << 64))
        case "boolean":
            return chance.random() < 0.5
        case "number":
            return chance.choice((-1.0, 0, 1e308))
    return chance.choice(_TEXTS)


@long("sends 8,000 requests")
class HostileCallTests(ConsoleCase):
    """The API, called from its own description."""

    def test_calls(self) -> None:
        """Each call has a response, each refusal is a document with a code, and none is a 500."""
        document = self.call("GET", "openapi.json").json
        connection = HTTPConnection(*self.admin, timeout=60)
        self.addCleanup(connection.close)
        counts: Counter[int] = Counter()
        before = len(self.daemon.log)
        for call in hostileCalls(document, CALLS):
            fields = {**ROOT.plainHeaders(), **call.fields}
            try:
                connection.request(call.method, API + call.target, call.body, fields)
                response = connection.getresponse()
                body = response.read()
            except (HTTPException, OSError) as error:
                self.fail(f"{call}: {error!r}")
            counts[response.status] += 1
            self.assertLess(response.status, 500, (call, body))
            if response.status >= 400 and call.method != "HEAD":
                refusal = json.loads(body)
                self.assertLessEqual(refusal.keys(), {"error", "message", "details"}, call)
                self.assertTrue(refusal["error"].isupper() or refusal["error"][0].isupper(), call)
        self.assertNotIn("Traceback", self.daemon.log[before:])
        self.assertLessEqual({200, 400, 404, 405}, counts.keys())
