"""
Who may, as one table: every operation of S3, and the gateway's Storage on every wire, for three
accounts and no account, under each kind of setting. What is expected is the sets of actions below.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from storagegate.objects.access.actions import (
    ACTIONS,
    OPERATION_ACTIONS,
    POLICY_ACTIONS,
    WRITER_ACTIONS,
)
from storagegate.s3.operations import OPERATIONS
from storagegate.s3.request import S3Operation
from tests.support.clients import Account, botoClient
from tests.support.daemon import Daemon
from tests.support.gatewayclients import CLIENTS
from tests.support.s3signer import Outgoing, exchange
from tests.support.selection import long
from tests.wire.gateway.test_storage import LISTENERS, WIRES
from tests.wire.s3.fixture import ENVIRONMENT, S3Case, ownDirectory
from tests.wire.s3.test_access import ALL_USERS, statement

ANN, BOB, EVE, ANYONE = "mxann", "mxbob", "mxeve", ""
CALLERS = (ANN, BOB, EVE, ANYONE)

ALL = frozenset(ACTIONS)
READ = frozenset({"s3:GetObject", "s3:ListBucket"})

Allowed = Mapping[str, frozenset[str]]
"""What each caller may; nothing, if it is not named."""

# Of accounts, not of a bucket; and one that is not built, which looks up no object.
_LEFT_OUT = frozenset({"ListBuckets", "CreateBucket", "SelectObjectContent"})

# They change what decides: where they are allowed, they are not sent.
_RESETTING = frozenset(
    {
        "DeleteBucketPolicy",
        "DeletePublicAccessBlock",
        "DeleteBucketOwnershipControls",
        "DeleteBucketTagging",
        "DeleteBucketCors",
        "DeleteObjectTagging",
    }
)

METHODS: Sequence[tuple[str, str, dict[str, Any], tuple[str, ...]]] = (
    ("ListObjects", "none", {}, ("s3:ListBucket",)),
    ("HeadObject", "none", {"key": "k"}, ("s3:GetObject",)),
    ("GetObject", "server", {"key": "k"}, ("s3:GetObject",)),
    ("PutObject", "client", {"key": "w"}, ("s3:PutObject",)),
    ("CopyObject", "none", {"key": "w", "fromKey": "k"}, ("s3:PutObject", "s3:GetObject")),
    ("DeleteObject", "none", {"key": "none"}, ("s3:DeleteObject",)),
    ("DeleteBucket", "none", {}, ("s3:DeleteBucket",)),
)


class AccessMatrixTests(S3Case):
    """One bucket, under one setting after the other."""

    timeout = 300

    def setUp(self) -> None:
        """Start a daemon with all wires, three accounts and a client of each wire."""
        super().setUp()
        self.daemon = Daemon(
            ownDirectory("matrix") / "data",
            *LISTENERS,
            environment=ENVIRONMENT,
            expect=("s3", "http", "grpc", "tcp", "udp"),
        )
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        self._logStart = 0
        self.address = self.daemon.address()
        self.accounts = {name: self.issueKey(name) for name in CALLERS if name}
        self.clients = {
            name: botoClient(self.daemon.url(), account, patient=False)
            for name, account in self.accounts.items()
        }
        self.ids = {name: s3.list_buckets()["Owner"]["ID"] for name, s3 in self.clients.items()}
        self.wires: dict[str, Any] = {}
        for wire in WIRES:
            listener = "http" if wire == "websocket" else wire
            self.wires[wire] = CLIENTS[wire](self.daemon.address(listener)[1])
            self.addCleanup(self.wires[wire].close)

    def settings(self) -> Iterator[tuple[str, Allowed]]:
        """Make each setting in turn, in a new bucket; give its name and what it allows."""
        bobs = {"AWS": BOB}
        yield self.make("private"), {ANN: ALL}
        yield self.make("reader", self.allow(bobs, *READ)), {ANN: ALL, BOB: READ}
        opened = frozenset({"s3:GetObject"})
        toAll = dict.fromkeys((BOB, EVE, ANYONE), opened)
        yield self.make("public", self.allow("*", "s3:GetObject")), {ANN: ALL, **toAll}
        denial = statement("denied", "*", "s3:GetObject", Effect="Deny")
        every = self.allow(bobs, "s3:*")
        granted = ALL - POLICY_ACTIONS
        both = {ANN: ALL - opened, BOB: granted - opened}
        yield self.make("denied", every, denial), both
        yield self.make("granted", every), {ANN: ALL, BOB: granted}
        name = self.make("blocked", self.allow("*", "s3:GetObject"))
        self.ann.put_public_access_block(
            Bucket=name, PublicAccessBlockConfiguration={"RestrictPublicBuckets": True}
        )
        yield name, {ANN: ALL}
        name = self.make("bucketlist")
        self.ann.put_bucket_acl(
            Bucket=name,
            GrantRead=f"id={self.ids[BOB]}",
            GrantWrite=f"id={self.ids[EVE]}",
            GrantReadACP=f"uri={ALL_USERS}",
        )
        lists = ("s3:ListBucket", "s3:ListBucketVersions", "s3:ListBucketMultipartUploads")
        seen = frozenset({"s3:GetBucketAcl"})
        writer = seen | {"s3:PutObject", "s3:DeleteObject"}
        yield name, {ANN: ALL, BOB: seen | set(lists), EVE: writer, ANYONE: seen}
        name = self.make("objectlist")
        self.ann.put_object_acl(
            Bucket=name,
            Key="k",
            GrantRead=f"id={self.ids[BOB]}",
            GrantWriteACP=f"id={self.ids[EVE]}",
            GrantReadACP=f"uri={ALL_USERS}",
        )
        shown = frozenset({"s3:GetObjectAcl"})
        acp = {EVE: shown | {"s3:PutObjectAcl"}, ANYONE: shown}
        yield name, {ANN: ALL, BOB: shown | opened, **acp}
        name = self.make("foreign", self.allow(bobs, "s3:PutObject"))
        self.clients[BOB].put_object(Bucket=name, Key="k", Body=b"bob's")
        self.ann.delete_bucket_policy(Bucket=name)
        yield name, {ANN: ALL - WRITER_ACTIONS, BOB: WRITER_ACTIONS}
        rules = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
        self.ann.put_bucket_ownership_controls(Bucket=name, OwnershipControls=rules)
        yield name, {ANN: ALL}

    def make(self, name: str, *statements: Any) -> str:
        """Create a bucket with an object, and set a policy."""
        self.ann = self.clients[ANN]
        self.ann.create_bucket(Bucket=name)
        self.ann.put_object(Bucket=name, Key="k", Body=b"ann's")
        if statements:
            text = json.dumps({"Statement": statements}).replace("BUCKET", name)
            self.ann.put_bucket_policy(Bucket=name, Policy=text)
        return name

    def allow(self, principal: Any, *actions: str) -> dict[str, Any]:
        """Return a statement about the bucket that is made next."""
        return statement("BUCKET", principal, *actions)

    @long("takes seconds")
    def test_matrix(self) -> None:
        """Each operation and each call is refused just where its actions are not allowed."""
        for bucket, allowed in self.settings():
            for caller in CALLERS:
                actions = allowed.get(caller, frozenset())
                for operation in OPERATIONS.values():
                    self.checkOperation(bucket, caller, operation, actions)
                if caller:
                    for wire in WIRES:
                        self.checkWire(bucket, self.accounts[caller], wire, actions)

    def checkOperation(
        self, bucket: str, caller: str, operation: S3Operation, allowed: frozenset[str]
    ) -> None:
        """Send a request that changes nothing where it is allowed."""
        name = operation.name
        needed = set(OPERATION_ACTIONS[name])
        if name in ("DeleteObjects", "RenameObject"):
            needed.add("s3:DeleteObject")
        if name == "CopyObject":
            needed.add("s3:GetObject")
        isAllowed = needed <= allowed
        if name in _LEFT_OUT or (isAllowed and name in _RESETTING):
            return
        key = "none" if name == "DeleteObject" else "k"
        target = f"/{bucket}" + (f"/{key}" if operation.level == "object" else "")
        query = operation.selector.replace("&id", "&id=x")
        if operation.selector == "uploadId":
            query = "uploadId=x" + ("&partNumber=1" if name.startswith("Upload") else "")
        if operation.variant.startswith("list-type"):
            query = operation.variant
        headers = {"Content-Length": "0"}
        if caller:
            headers.update(self.accounts[caller].plainHeaders())
        if operation.variant == "x-amz-copy-source":
            headers["x-amz-copy-source"] = f"{bucket}/k"
        if name in ("PutObject", "CopyObject"):
            headers["If-None-Match"] = "*"
        found = exchange(
            self.address,
            Outgoing(operation.method.decode(), target + (f"?{query}" if query else ""), headers),
        )
        where = (bucket, caller, name, found.status, found.code)
        self.assertEqual(found.status != 403, isAllowed, where)
        self.assertNotEqual(found.status, 500, where)

    def checkWire(self, bucket: str, account: Account, wire: str, allowed: frozenset[str]) -> None:
        """Call Storage."""
        service = "storagegate.Storage" if wire == "grpc" else "Storage"
        token = f"{account.accessKey}:{account.secretKey}"
        for method, kind, fields, needed in METHODS:
            request = {"bucket": bucket, **fields}
            if method == "CopyObject":
                request["fromBucket"] = bucket
            items = [request]
            if method == "PutObject":
                items += [{"chunk": "eA=="}, {"complete": True}]
            begun = self.wires[wire].begin(service, method, kind, items, token=token)
            problem = begun.finish().problem
            code = "" if problem is None else problem.code
            isRefused = code in ("PERMISSION_DENIED", "StatusCode.PERMISSION_DENIED")
            where = (bucket, account.accessKey, wire, method, code)
            self.assertEqual(isRefused, not set(needed) <= allowed, where)
