"""Calls to IAM and STS: authenticated, read, performed and answered."""

from collections.abc import Mapping
from time import time

from storagegate.net.http.message import ChannelRequest
from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import ANONYMOUS
from storagegate.objects.checksums import BodyExpectation
from storagegate.objects.errors import EntityTooLarge
from storagegate.s3.auth.authenticator import Authenticated, isUnsigned
from storagegate.s3.auth.sigv4 import SignedRequest
from storagegate.s3.checksums import gather
from storagegate.s3.errors import S3Error
from storagegate.s3.iam.apis import QueryAPI
from storagegate.s3.iam.documents import answerDocument
from storagegate.s3.iam.parameters import CALL_LIMIT, parseCall, readOperation
from storagegate.s3.observers import S3RequestRecord
from storagegate.s3.request import S3Services

_XML = (b"Content-Type", b"text/xml")


class QueryEndpoint:
    """The API of IAM or STS at one listener."""

    def __init__(self, services: S3Services, api: QueryAPI) -> None:
        self._services = services
        self._api = api

    async def readBody(self, request: ChannelRequest) -> bytes:
        """
        Read the body of a call, which its signature covers.

        @raise S3Error: C{MaxMessageLengthExceeded}.
        """
        if request.method != b"POST":
            return b""
        try:
            return await gather(request.body, BodyExpectation(limit=CALL_LIMIT))
        except EntityTooLarge as error:
            raise S3Error("MaxMessageLengthExceeded") from error

    def authenticate(
        self, request: ChannelRequest, headers: Mapping[bytes, bytes], body: bytes
    ) -> Authenticated:
        """
        Authenticate a call.

        @param headers: The header fields as they are signed.
        @raise S3Error: The credentials are invalid.
        """
        if self._api.hasUnsigned and isUnsigned(request.queryString, headers):
            return Authenticated(ANONYMOUS)
        sent = SignedRequest(request.method, request.path, request.queryString, headers)
        return self._services.authenticator.authenticateCall(sent, self._api.service, body)

    async def respond(
        self,
        request: ChannelRequest,
        record: S3RequestRecord | None,
        authenticated: Authenticated,
        body: bytes,
        requestId: str,
        commonHeaders: bytes,
    ) -> None:
        """
        Perform an authenticated call, and send its answer.

        @param record: Gets the name of the operation.
        @param commonHeaders: The encoded fields of every response.
        """
        parameters = parseCall(body or request.queryString)
        name = parameters.get("Action", "")
        # Any other name could be a label of too many metrics.
        if record is not None and name in self._api.operations:
            record.operation = name
        operation = readOperation(parameters, self._api)
        services = self._services
        caller = PlainCaller(
            authenticated.identity,
            name,
            now=time(),
            address=request.clientAddress(services.trust),
            secure=request.secure,
            signing=authenticated.signing,
            tlsVersion=request.tlsVersion,
        )
        answer = await self._api.perform(services.objects, caller, operation)
        document = answerDocument(name, answer, requestId, self._api.namespace)
        request.respond(200, (_XML,), document, commonHeaders)
