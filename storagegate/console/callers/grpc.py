"""Calls over gRPC, with the protobuf definitions of its listener."""

import os
import time
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred

from storagegate.console.callers.interfaces import (
    MAX_BYTES,
    Answer,
    CallTarget,
    MethodCall,
    tooLarge,
)
from storagegate.core.errors import GRPC_STATUSES, asServiceError, codedError
from storagegate.rpc.call import CallMetadata, wireMetadata
from storagegate.rpc.client import GRPCClientTLS, readAddress, readArguments
from storagegate.rpc.clientcall import statusError
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.credentials import makeChannelCredentials
from storagegate.rpc.engine import makeClientEngine
from storagegate.rpc.interfaces import CallOptions, IClientEngine
from storagegate.rpc.protos import RPCMethod


def makeEngine(target: CallTarget) -> IClientEngine:
    """
    Make a channel to a listener.

    With TLS, the channel trusts only the certificate of the listener itself, by a name in it.
    """
    tls = secure = None
    if target.tls is not None:
        tls = _ownTLS(target)
        secure = makeChannelCredentials(tls.roots, tls.key, tls.chain)
    name = target.authority
    if isinstance(target.address, UNIXAddress) and target.address.name is not None:
        name = f"unix:{os.fsdecode(target.address.name)}"
    arguments = readArguments({"maxReceiveMessageLength": MAX_BYTES}, tls)
    return makeClientEngine(readAddress(name), secure, arguments, target.reactor)


def _ownTLS(target: CallTarget) -> GRPCClientTLS:
    from cryptography.x509 import load_pem_x509_certificate

    assert target.tls is not None
    with open(target.tls.cert, "rb") as file:
        chain = file.read()
    key = None
    if target.tls.requiresClient:
        with open(target.tls.key, "rb") as file:
            key = file.read()
    name = certificateName(load_pem_x509_certificate(chain))
    return GRPCClientTLS(chain, key, None if key is None else chain, name)


def certificateName(certificate: Any) -> str | None:
    """Return a name in a certificate; C{None} if it has none."""
    from cryptography.x509 import DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName
    from cryptography.x509.oid import NameOID

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(common[0].value) if common else None
    for name in names.get_values_for_type(DNSName):
        return str(name).replace("*", "console")
    return next((str(each) for each in names.get_values_for_type(IPAddress)), None)


async def makeCall(target: CallTarget, call: MethodCall) -> AsyncGenerator[Answer]:
    """
    Call a method.

    @raise ServiceError: See L{storagegate.console.callers.interfaces}; C{INVALID_ARGUMENT} if a
        request does not match its message.
    """
    method: RPCMethod | None = target.methods.get((call.service, call.method))
    # The listener refuses an unknown method.
    path = f"/{quote(call.service)}/{quote(call.method)}" if method is None else method.path
    try:
        metadata = wireMetadata(call.fields(target.apiKeyHeader))
        given = call.requests if call.streamsRequests else [call.request]
        requests = [b""] if method is None else [method.request.encode(each) for each in given]
    except (ConversionError, ValueError) as error:
        raise codedError("INVALID_ARGUMENT", str(error)) from error
    options = CallOptions(metadata, time.time() + call.deadlineMs / 1000)
    engine = makeEngine(target)
    try:
        isStream = call.streamsRequests and method is not None
        engineCall = engine.call(path, options, None if isStream else requests[0])
        sending: Deferred[None] | None = None
        if isStream:
            sending = Deferred.fromCoroutine(_send(engineCall, requests))
        try:
            while True:
                received: Deferred[bytes | None] = Deferred()
                engineCall.read(received.callback)
                message = await received
                if message is None:
                    break
                yield (method.response.decode(message) if method else None), len(message)
            status, text, trailers = await engineCall.ended()
        finally:
            if sending is not None:
                sending.cancel()
            engineCall.cancel()
        if status:
            failed = statusError(status, text, CallMetadata(trailers or ()))
            if failed.status == GRPC_STATUSES["RESOURCE_EXHAUSTED"] and "larger than max" in text:
                raise tooLarge()
            raise asServiceError(failed)
    finally:
        engine.close()


async def _send(engineCall: Any, requests: list[bytes]) -> None:
    """Send the messages of a stream."""
    for request in requests:
        if not engineCall.send(request):
            await engineCall.drained()
    engineCall.sendEnd()
