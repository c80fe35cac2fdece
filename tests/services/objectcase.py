"""The Storage service and S3 side by side on one real store."""

import os
from base64 import b64encode
from collections.abc import AsyncIterable
from hashlib import md5
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.auth.authentication import Authentication
from storagegate.auth.tokens import APIKeyProvider
from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.errors import ServiceError
from storagegate.core.invoker import CallCredentials, Invoker
from storagegate.gateway.transports.registry import cutHidingTransports, defaultRules, maxItemBytes
from storagegate.net.endpoints import listen
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site
from storagegate.objects.accounts import AccessKeyStore
from storagegate.s3.resource import makeS3Resource
from storagegate.services.objects import makeStorageService, storageAuthenticate
from storagegate.storage.backends import DEFAULT_BLOBS, DEFAULT_CATALOG
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.mutations import AddAccessKey
from storagegate.storage.records import AccessKey
from tests.services.usercase import Requests, ended
from tests.support.clients import REGION, ROOT, Account
from tests.support.s3signer import Answer, Outgoing, exchange

BIG = os.urandom(1 << 16) * 20 + b"end"
"""More than the catalog keeps inline and than one read gives."""


def etagOf(body: bytes) -> str:
    """Give the ETag that S3 gives to a body."""
    return md5(body).hexdigest()


def upload(bucket: str, key: str, *chunks: bytes, **more: Any) -> Requests:
    """Give the items of an upload."""
    first = {"bucket": bucket, "key": key, **more}
    return ended(first, *({"chunk": chunk} for chunk in chunks))


class StorageCase(TestCase):
    """A test with a store, the service as the wires call it, and S3 where one asks for it."""

    timeout = 60
    verifyReads = False
    catalogName = DEFAULT_CATALOG
    blobsName = DEFAULT_BLOBS

    def setUp(self) -> None:
        """Make the store and the service."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.directory = os.path.abspath(self.mktemp())
        self.store = openStore(
            self.directory,
            reactor,
            durability="os",
            verifyReads=self.verifyReads,
            catalog=self.catalogName,
            blobs=self.blobsName,
        )
        self.addCleanup(lambda: Deferred.fromCoroutine(self.store.close()))
        credentials = AccessKeyStore(self.store.accessKeys, ROOT.accessKey, ROOT.secretKey)
        authentication = Authentication({}, defaultRules())
        authentication.ownKeys["Storage"] = APIKeyProvider(storageAuthenticate(credentials))
        self.invoker = Invoker(authentication)
        self.definition = makeStorageService(
            self.store,
            credentials,
            REGION,
            maxItemBytes=maxItemBytes(),
            cutHiding=cutHidingTransports(),
        )
        self.invoker.add(self.definition)
        self.address: tuple[str, int] | None = None

    async def issue(self, name: str, **limits: str) -> Account:
        """Issue a key of an account named like it."""
        account = Account(f"KEY{name.upper()}", f"secret-of-{name}")
        await self.store.catalog.commit(
            AddAccessKey(
                AccessKey(account.accessKey, account.secretKey, **{"account": name, **limits})
            )
        )
        # Sooner than the next poll.
        await self.store.accessKeys.refresh()
        return account

    def call(
        self, method: str, request: Any, account: Account = ROOT, protocol: str = "tcp"
    ) -> Deferred[Any]:
        """Call a method as a wire does."""
        context = RequestContext(
            protocol, "Storage", method, ClientInfo("a", "127.0.0.1", 1), Tracing("0" * 32)
        )
        key = f"{account.accessKey}:{account.secretKey}"
        credentials = CallCredentials(token=key, apiKey=key)
        return Deferred.fromCoroutine(self.invoker.call(context, request, credentials))

    async def stream(self, method: str, request: Any, **more: Any) -> list[Any]:
        """Call a method and read all of its responses."""
        items: AsyncIterable[Any] = await self.call(method, request, **more)
        return [item async for item in items]

    async def put(self, bucket: str, key: str, *chunks: bytes, **more: Any) -> Any:
        """Store an object."""
        return await self.call("PutObject", upload(bucket, key, *chunks, **more))

    async def read(self, bucket: str, key: str, **more: Any) -> bytes:
        """Give the bytes of an object."""
        first, *rest = await self.stream("GetObject", {"bucket": bucket, "key": key, **more})
        self.assertEqual(list(first), ["object"])
        return b"".join(item["chunk"] for item in rest)

    async def refused(
        self,
        code: str,
        method: str,
        request: Any,
        account: Account = ROOT,
        protocol: str = "tcp",
    ) -> ServiceError:
        """Give the error of a call, unary or of a stream of responses."""
        try:
            result = await self.call(method, request, account, protocol)
            if hasattr(result, "__anext__"):
                async for _ in result:
                    pass
        except ServiceError as error:
            self.assertEqual(error.code, code, error.message)
            return error
        raise self.failureException(f"{method} took {request!r:.100}")

    async def openS3(self) -> None:
        """Serve the same store by S3."""
        resource = makeS3Resource(
            self.store,
            region=REGION,
            s3Domain=None,
            rootAccessKey=ROOT.accessKey,
            rootSecretKey=ROOT.secretKey,
            reactor=self.reactor,
        )
        site = Site(resource, HTTPLimits(), self.reactor)
        port = await listen(self.reactor, "tcp:0:interface=127.0.0.1", site)
        self.addCleanup(site.drain, 0)
        self.addCleanup(port.stopListening)
        self.address = ("127.0.0.1", port.getHost().port)

    async def s3(
        self, method: str, target: str, body: bytes = b"", status: int = 200, **headers: str
    ) -> Answer:
        """Do something by S3, with underscores for hyphens in the names of headers."""
        if self.address is None:
            await self.openS3()
        digest = b64encode(md5(body).digest()).decode()
        plain = {**ROOT.plainHeaders(), "Content-MD5": digest}
        outgoing = Outgoing(method, target, plain, body).adding(**headers)
        answer: Answer = await deferToThread(exchange, self.address, outgoing)
        self.assertEqual(answer.status, status, answer.body[:500])
        return answer
