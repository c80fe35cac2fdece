"""One bucket by six doors: what is put through any of them is read through every other."""

import base64
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.protos import protoPath
from tests.support.daemon import ACCESS_KEY, SECRET_KEY, Daemon
from tests.support.gatewayanswers import Answer
from tests.support.gatewayclients import CLIENTS
from tests.support.http import ROOT_HEADERS, connect
from tests.support.modules import CHECKOUT
from tests.support.nodepackages import nodeModules
from tests.support.selection import long

WIRES = ("http", "websocket", "grpc", "tcp", "udp")
DOORS = ("s3", *WIRES)

KEY = f"{ACCESS_KEY}:{SECRET_KEY}"

CHUNK = 700
"""Bytes of an item that a datagram holds."""

LISTENERS = (
    "--http",
    "tcp:0:interface=127.0.0.1",
    "--tcp",
    "tcp:0:interface=127.0.0.1",
    "--grpc",
    "127.0.0.1:0",
    "--udp",
    "127.0.0.1:0",
)


class DoorTests(SynchronousTestCase):
    """The daemon as it is, with clients that share nothing with it."""

    def setUp(self) -> None:
        """Start a daemon with everything on, and connect to each of its doors."""
        self.daemon = Daemon(
            Path(self.mktemp()).absolute(),
            *LISTENERS,
            expect=("s3", "http", "grpc", "tcp", "udp"),
        )
        self.daemon.start()
        self.addCleanup(self.daemon.kill)
        self.clients: dict[str, Any] = {}
        for wire in WIRES:
            name = "http" if wire == "websocket" else wire
            self.clients[wire] = CLIENTS[wire](self.daemon.address(name)[1])
            self.addCleanup(self.clients[wire].close)

    def call(self, wire: str, method: str, kind: str, *requests: Any, token: str = KEY) -> Answer:
        """Call a method of Storage."""
        service = "storagegate.Storage" if wire == "grpc" else "Storage"
        begun = self.clients[wire].begin(service, method, kind, requests, token=token)
        answer: Answer = begun.finish()
        return answer

    def done(self, wire: str, method: str, kind: str, *requests: Any) -> list[Any]:
        """Call it, and see that it ended well."""
        answer = self.call(wire, method, kind, *requests)
        self.assertIsNone(answer.problem, f"{method} over {wire}")
        return answer.values

    def s3(self, verb: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        """Ask the S3 listener."""
        connection = connect(self.daemon.address())
        try:
            connection.request(verb, path, body or None, dict(ROOT_HEADERS))
            response = connection.getresponse()
            return response.status, dict(response.headers), response.read()
        finally:
            connection.close()

    def put(self, door: str, key: str, body: bytes) -> str:
        """Put an object; give its ETag."""
        if door == "s3":
            status, headers, _ = self.s3("PUT", f"/doors/{key}", body)
            self.assertEqual(status, 200)
            return headers["ETag"].strip('"')
        pieces = [body[start : start + CHUNK] for start in range(0, len(body), CHUNK)]
        items: list[Any] = [{"bucket": "doors", "key": key, "contentType": "text/x-door"}]
        items += [{"chunk": base64.b64encode(piece).decode()} for piece in pieces]
        items.append({"complete": True, "checksum": hashlib.md5(body).hexdigest()})
        [made] = self.done(door, "PutObject", "client", *items)
        return str(made["etag"]).strip('"')

    def get(self, door: str, key: str) -> bytes:
        """Get an object's bytes."""
        if door == "s3":
            status, _, body = self.s3("GET", f"/doors/{key}")
            self.assertEqual(status, 200)
            return body
        request = {"bucket": "doors", "key": key}
        first, *chunks = self.done(door, "GetObject", "server", request)
        self.assertEqual(first["object"]["key"], key)
        return b"".join(base64.b64decode(each["chunk"]) for each in chunks)

    def test_pairs(self) -> None:
        """All thirty-six pairs agree, byte for byte."""
        self.assertEqual(self.s3("PUT", "/doors")[0], 200)
        for number, writer in enumerate(DOORS):
            body = bytes((number + each) % 256 for each in range(5_000))
            etag = self.put(writer, f"by-{writer}", body)
            self.assertEqual(etag, hashlib.md5(body).hexdigest(), writer)
            for reader in DOORS:
                self.assertEqual(self.get(reader, f"by-{writer}"), body, f"{writer} to {reader}")

    def test_versions(self) -> None:
        """What is overwritten and deleted at one door stays at each other under its id."""
        self.assertEqual(self.s3("PUT", "/doors")[0], 200)
        enabled = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        self.assertEqual(self.s3("PUT", "/doors?versioning", enabled)[0], 200)
        names = {"bucket": "doors", "key": "k"}
        ids: dict[str, str] = {}
        for wire in WIRES:
            self.put(wire, "k", wire.encode())
            [found] = self.done(wire, "HeadObject", "none", names)
            ids[wire] = found["versionId"]
        self.assertEqual(len({*ids.values()}), len(WIRES))
        for reader in WIRES:
            for writer, versionId in ids.items():
                request = {**names, "versionId": versionId}
                first, chunk = self.done(reader, "GetObject", "server", request)
                self.assertEqual(first["object"]["versionId"], versionId)
                self.assertEqual(base64.b64decode(chunk["chunk"]), writer.encode())
            [marked] = self.done(reader, "DeleteObject", "none", names)
            self.assertTrue(marked["deleteMarker"], reader)
            self.assertEqual(self.s3("GET", "/doors/k")[0], 404)
            source = {"fromBucket": "doors", "fromKey": "k", "fromVersionId": ids[reader]}
            self.done(reader, "CopyObject", "none", {**source, **names})
            self.assertEqual(self.get("s3", "k"), reader.encode())
            byMarker = {**names, "versionId": marked["versionId"]}
            self.assertEqual(self.done(reader, "DeleteObject", "none", byMarker), [marked])
            answer = self.call(reader, "HeadObject", "none", byMarker)
            assert answer.problem is not None
            self.assertEqual(answer.problem.code, "NOT_FOUND", reader)

    def test_empty(self) -> None:
        """An object of no bytes is one, too."""
        self.assertEqual(self.s3("PUT", "/doors")[0], 200)
        for writer in DOORS:
            self.put(writer, f"by-{writer}", b"")
            self.assertEqual([self.get(reader, f"by-{writer}") for reader in DOORS], [b""] * 6)

    @long("takes seconds")
    def test_cancelled(self) -> None:
        """An upload by grpc-js that is cancelled stores nothing, whenever it is."""
        self.assertEqual(self.s3("PUT", "/doors")[0], 200)
        for key in ("at-once", "later", "whole"):
            self.put("s3", key, b"old")
        modules = nodeModules()
        program = CHECKOUT / "tests" / "support" / "grpcjsupload.js"
        proto = protoPath() / "storage.proto"
        done = subprocess.run(
            ["node", str(program), str(self.daemon.address("grpc")[1]), str(proto), KEY],
            env={**os.environ, "NODE_PATH": str(modules)},
            capture_output=True,
            timeout=60,
            check=True,
        )
        self.assertEqual(json.loads(done.stdout), {"at-once": 1, "later": 1, "whole": 0})
        self.assertEqual(self.get("s3", "whole"), b"x" * 300_000)
        # The daemon learns of a cancel after its client.
        for _ in range(20):
            self.assertEqual(self.get("s3", "at-once"), b"old")
            self.assertEqual(self.get("s3", "later"), b"old")

    def test_buckets(self) -> None:
        """A bucket made at one door is there at every other, and gone when it is deleted."""
        for wire in WIRES:
            self.done(wire, "CreateBucket", "none", {"bucket": f"by-{wire}"})
        for wire in WIRES:
            [listed] = self.done(wire, "ListBuckets", "none", {})
            names = sorted(each["name"] for each in listed["buckets"])
            self.assertEqual(names, sorted(f"by-{each}" for each in WIRES), wire)
        for wire in WIRES:
            self.done(wire, "DeleteBucket", "none", {"bucket": f"by-{wire}"})
            self.assertEqual(self.s3("HEAD", f"/by-{wire}")[0], 404)

    def test_keys(self) -> None:
        """Every wire refuses who is unknown, and who has a wrong secret."""
        for wire in WIRES:
            for token in ("nobody:nothing", f"{ACCESS_KEY}:wrong", SECRET_KEY):
                answer = self.call(wire, "ListBuckets", "none", {}, token=token)
                assert answer.problem is not None
                self.assertEqual(answer.problem.code, "UNAUTHENTICATED", f"{wire} {token}")

    def test_users(self) -> None:
        """The reference UserService is the same at every door."""
        made: list[str] = []
        for wire in WIRES:
            service = "user.UserService" if wire == "grpc" else "UserService"
            client = self.clients[wire]
            user = {"name": wire, "email": f"{wire}@example.org"}
            answer: Answer = client.begin(service, "CreateUser", "none", [user]).finish()
            self.assertIsNone(answer.problem, wire)
            made.append(answer.values[0]["id"])
        for wire in WIRES:
            service = "user.UserService" if wire == "grpc" else "UserService"
            client = self.clients[wire]
            for id in made:
                # Padding, for a datagram of somebody unknown is answered by three times it.
                request = {"id": id} if wire != "udp" else {"id": id, "pad": "x" * 200}
                answer = client.begin(service, "GetUser", "none", [request]).finish()
                self.assertIsNone(answer.problem, wire)
                self.assertEqual(answer.values[0]["id"], id)
