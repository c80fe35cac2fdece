"""
Writes that are decided on by a bucket in memory, where the catalog is in PostgreSQL: another node's
change of the bucket counts for them from its answer on, notified or not.
"""

import os
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import AccessKeyStore, Identity
from storagegate.objects.checksums import IngestedBody
from storagegate.objects.domain import openDomain
from storagegate.objects.encryption.bucketkeys import keysIn
from storagegate.objects.encryption.options import EncryptionOptions
from storagegate.objects.encryption.requests import (
    SSE_KMS,
    SSE_S3,
    BucketEncryption,
    RequestedEncryption,
)
from storagegate.objects.errors import DomainError
from storagegate.objects.identities.entities import IAMUser
from storagegate.objects.service import ObjectService
from storagegate.objects.settings import ENCRYPTION, POLICY
from storagegate.storage.cluster.connection import Connection
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.errors import BucketChanged, NoSuchBucket
from storagegate.storage.mutations import (
    AddAccessKey,
    AddBucket,
    PutObject,
    PutSettings,
    RemoveAccessKey,
    RemoveBucket,
    SetObjectLock,
    SetVersioning,
)
from storagegate.storage.records import (
    VERSIONING_ENABLED,
    AccessKey,
    Attributes,
    Checksum,
    Content,
    ObjectRecord,
    WriteCondition,
)
from storagegate.storage.store import ObjectStore
from tests.contract.catalogcase import bucketNamed, inlineRecord
from tests.support.contention import Stopwatch
from tests.support.masterkeys import MemoryMasterKeys
from tests.support.postgresql import sharedServer
from tests.support.selection import long

BOB = Identity("BK", "bob")
ALICE = Identity("AK", "alice")

ALLOWED = b"""{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*",
    "Action": "s3:PutObject", "Resource": "arn:aws:s3:::b/*"}]}"""
CHECKSUM = Checksum("CRC64NVME", "AAAAAAAAAAA=")
ALLOW = """{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
    "Action": "s3:PutObject", "Resource": "arn:aws:s3:::b/*"}]}"""
DENIED = ALLOWED.replace(b'"Allow"', b'"Deny"')


@long("starts PostgreSQL")
class DecisionTests(TestCase):
    """Two nodes, of which the second learns of no change by itself."""

    async def setUp(self) -> None:
        """Open both, with the bucket C{b} of alice."""
        from twisted.internet import reactor

        conninfo = sharedServer().store()
        self.keys = MemoryMasterKeys()
        self.stores: list[Any] = []
        self.services: list[ObjectService] = []
        for name in ("first", "second"):
            store = openStore(
                os.path.abspath(self.mktemp()),
                reactor,
                catalog="postgresql",
                options={"catalog": [conninfo], "node": name, "leaseSeconds": 60.0},
            )
            self.addCleanup(self.close, store)
            self.stores.append(store)
            accounts = AccessKeyStore(store.accessKeys, "AK", "secret")
            # Each node has its own open keys.
            options = EncryptionOptions(lambda: self.keys)
            self.services.append(openDomain(store, accounts, "us-east-1", lambda: 1, "", options))
        self.first, self.second = (store.catalog for store in self.stores)
        await self.first.commit(AddBucket(bucketNamed("b")))
        await self.second._forLists.opened()
        # Before it is notified.
        self.second._forLists.connection._onNotification = lambda channel, payload: None
        await self.second.bucket("b")

    async def close(self, store: ObjectStore) -> None:
        """Close a node's."""
        await store.close()

    async def put(self, identity: Identity, key: bytes = b"k") -> ObjectRecord:
        """Put a small object on the second node, as a request does."""
        service = self.services[1]
        caller = PlainCaller(identity, "PutObject")
        bucket, owner = await service.checkWrite(caller, "b", key, length=5)
        objectKey = await service.keyForWrite(bucket, key)
        stored = b"hello" if objectKey is None else objectKey.seal(b"hello")
        body = IngestedBody(Content(5, stored), "e" * 32, CHECKSUM, None, objectKey)
        return await service.putObject(owner, "b", key, body, Attributes())

    async def refusal(self, identity: Identity) -> str:
        """Return the error of a put."""
        with self.assertRaises(DomainError) as caught:
            await self.put(identity, b"refused")
        _, record = await self.second.object("b", b"refused")
        self.assertIsNone(record)
        code: str = caught.exception.code
        return code

    def trips(self) -> list[None]:
        """Count the transactions of the second node from now on, but for those of its keys."""
        counted: list[None] = []
        run, lookUp = Connection.run, Connection.lookUp

        def countRun(connection: Connection, steps: Any, began: float | None = None) -> Any:
            counted.append(None)
            return run(connection, steps, began)

        def countLookUp(connection: Connection, step: Any) -> Any:
            if step[0] != b"keysgeneration":
                counted.append(None)
            return lookUp(connection, step)

        self.patch(Connection, "run", countRun)
        self.patch(Connection, "lookUp", countLookUp)
        return counted

    async def test_roundTrips(self) -> None:
        """A small write is one round trip, and so is a look-up, also in a bucket with settings."""
        await self.first.commit(PutSettings("b", {POLICY: ALLOWED}))
        await self.put(BOB)
        trips = self.trips()
        await self.put(ALICE)
        self.assertEqual(len(trips), 1)
        caller = PlainCaller(ALICE, "GetObject")
        await self.services[1].object(caller, "b", b"k")
        self.assertEqual(len(trips), 2)

    async def test_policies(self) -> None:
        """A policy that another node has put, or removed, decides on the next write."""
        self.assertEqual(await self.refusal(BOB), "AccessDenied")
        await self.first.commit(PutSettings("b", {POLICY: ALLOWED}))
        await self.put(BOB)
        await self.first.commit(PutSettings("b", {POLICY: None}))
        self.assertEqual(await self.refusal(BOB), "AccessDenied")
        await self.put(ALICE)
        await self.first.commit(PutSettings("b", {POLICY: DENIED}))
        self.assertEqual(await self.refusal(ALICE), "AccessDenied")

    async def test_encryption(self) -> None:
        """An object has the default encryption that another node has put, and both read it."""
        caller = PlainCaller(ALICE, "GetObject")
        for kind in (SSE_S3, SSE_KMS, "", SSE_KMS):
            document = msgspec.json.encode(BucketEncryption(kind)) if kind else None
            await self.first.commit(PutSettings("b", {ENCRYPTION: document}))
            await self.put(ALICE)
            for service in self.services:
                bucket, record = await service.object(caller, "b", b"k")
                encryption = record.attributes.encryption
                self.assertEqual("" if encryption is None else encryption.kind, kind)
                content = await service.contentOf(bucket, record)
                self.assertEqual(content.inline(0, 5), b"hello")
                self.assertEqual((record.etag == "e" * 32), kind != SSE_KMS)
                plain = await service.withDigests(bucket, record)
                self.assertEqual(plain.attributes.checksum, CHECKSUM)
        self.assertEqual(self.keys.wraps, 1)

    async def test_oneKey(self) -> None:
        """Two nodes that use a bucket for the first time at once make one key."""
        wanted = RequestedEncryption(SSE_S3)
        bucket = await self.first.bucket("b")
        made = await gatherResults(
            [
                Deferred.fromCoroutine(service.keyForWrite(bucket, b"k", wanted))
                for service in self.services
            ]
        )
        _, documents = await self.first.settings("b")
        self.assertEqual(len(keysIn(documents)), 1)
        for each in made:
            for service in self.services:
                opened = await service.encryption.open("b", documents, b"k", each.encryption, None)
                assert opened is not None
                self.assertEqual(opened.key, each.key)

    async def test_ownership(self) -> None:
        """An object has the owner that the settings say which another node has put."""
        await self.first.commit(PutSettings("b", {POLICY: ALLOWED}))
        await self.put(BOB)
        documents = {POLICY: ALLOWED, "ownershipControls": b"BucketOwnerEnforced"}
        await self.first.commit(PutSettings("b", documents))
        self.assertEqual((await self.put(BOB)).account, "alice")

    async def test_anotherBucket(self) -> None:
        """A bucket of the same name, of another account, is not taken for the one before."""
        await self.first.commit(RemoveBucket("b"))
        # Refused by the transaction, or before it if the notification has arrived.
        with self.assertRaises((NoSuchBucket, DomainError)) as caught:
            await self.put(ALICE)
        self.assertIn("NoSuchBucket", repr(caught.exception))
        await self.first.commit(AddBucket(bucketNamed("b", "bob")))
        self.assertEqual(await self.refusal(ALICE), "AccessDenied")

    async def test_revisions(self) -> None:
        """A write with the revision of a bucket that was changed is refused, whatever changed."""
        for change in (
            lambda: self.first.commit(PutSettings("b", {"cors": b"[]"})),
            lambda: self.first.commit(PutSettings("b", {"cors": b"[]"})),
            lambda: self.first.commit(SetVersioning("b", VERSIONING_ENABLED)),
            lambda: self.first.commit(SetObjectLock("b", None)),
        ):
            await self.second.bucket("b")
            bucket, revision = self.second.recentBucket("b")
            self.assertEqual(bucket, await self.first.bucket("b"))
            condition = WriteCondition(revision=revision)
            await self.second.commit(PutObject(inlineRecord(b"k"), condition))
            await change()
            with self.assertRaises(BucketChanged):
                await self.second.commit(PutObject(inlineRecord(b"l"), condition))
        self.assertIsNone((await self.second.object("b", b"l"))[1])

    async def test_keys(self) -> None:
        """
        A key works, and stops working, on a node that is not notified when it polls, and on one
        that is before.
        """
        notified, polling = (store.accessKeys for store in self.stores)
        await gatherResults([notified.loaded(), polling.loaded()])
        for change in (
            lambda: self.first.commit(AddAccessKey(AccessKey("K", "s", "ada"))),
            lambda: self.first.commit(RemoveAccessKey("K")),
        ):
            before = notified.generation
            await change()
            watch = Stopwatch()
            while notified.generation == before:
                await self.first.bucket("b")
            noticed = watch.seconds()
            while polling.generation == before:
                await self.first.bucket("b")
            self.assertLess(noticed, 1.0)
            self.assertEqual(notified.keys, polling.keys)
        self.assertEqual(polling.keys, {})

    async def test_identities(self) -> None:
        """A changed user reaches the other node as a key does, and the key only has its rights."""
        notified, polling = (store.accessKeys for store in self.stores)
        await gatherResults([notified.loaded(), polling.loaded()])
        key = AccessKey("U", "s", "alice", userName="ada")
        keys = self.services[1].accounts
        for policies, isAllowed in (({}, False), ({"p": ALLOW}, True), ({}, False)):
            user = IAMUser(name="Ada", policies=policies)
            await self.services[0].identities.change(
                "alice",
                lambda state, user=user: (state.withEntity(user).withKey(key), None),
            )
            generation, watch = notified.generation, Stopwatch()
            while polling.generation < generation:
                await self.first.bucket("b")
            self.assertLess(watch.seconds(), 1.0)
            identity = keys.find("U").identity
            if isAllowed:
                await self.put(identity)
            else:
                self.assertEqual(await self.refusal(identity), "AccessDenied")

    async def test_notified(self) -> None:
        """A node that is notified of a change forgets the bucket, so that no write is refused."""
        await self.first.bucket("b")
        self.assertIsNotNone(self.first.recentBucket("b"))
        await self.second.commit(PutSettings("b", {"cors": b"[]"}))
        while self.first.recentBucket("b") is not None:
            await self.first.keysGeneration()
