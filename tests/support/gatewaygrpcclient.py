"""
A grpcio client for the gRPC transport of a gateway.

See L{tests.support.gatewayclients} for the common interface.
"""

import queue
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_status import rpc_status

from tests.support.gatewayanswers import SECONDS, Answer, Problem, streams


class GRPCClient:
    """Calls over gRPC with grpcio, which finds the methods by reflection."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self._channel))

    def begin(
        self,
        service: str,
        method: str,
        kind: str,
        requests: Sequence[Any],
        *,
        token: str | None = None,
        deadlineMs: int | None = None,
        isOpen: bool = False,
    ) -> "GRPCBegun":
        """Start a call; the method need not exist."""
        found: Any = None
        with suppress(KeyError):
            found = self._pool.FindServiceByName(service).FindMethodByName(method)
        request, response = Empty, Empty
        messages: list[Any] = [Empty()]
        if found is not None:
            request, response = (
                GetMessageClass(found.input_type),
                GetMessageClass(found.output_type),
            )
            messages = [ParseDict(each, request()) for each in requests]
        several, answers = streams(kind)
        word = f"{'stream' if several else 'unary'}_{'stream' if answers else 'unary'}"
        start = getattr(self._channel, word)(
            f"/{service}/{method}", request.SerializeToString, response.FromString
        )
        begun = GRPCBegun(answers)
        given = begun.give(messages, isOpen) if several else messages[0]
        metadata = () if token is None else (("x-api-key", token),)
        timeout = SECONDS if deadlineMs is None else deadlineMs / 1000
        if not answers:
            start = start.future
        begun.call = start(given, timeout=timeout, metadata=metadata)
        return begun

    def waitForConnection(self) -> None:
        """Wait for a connection: without one, grpcio fails every call immediately."""
        grpc.channel_ready_future(self._channel).result(SECONDS)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


class GRPCBegun:
    """A call over gRPC."""

    call: Any

    def __init__(self, streams: bool) -> None:
        self._streams = streams
        self._ended: queue.Queue[None] = queue.Queue()

    def give(self, messages: Sequence[Any], isOpen: bool) -> Iterator[Any]:
        """Yield requests, in a thread of grpcio; then wait if the stream must stay open."""
        yield from messages
        if isOpen:
            self._ended.get(timeout=SECONDS)

    def cancel(self) -> None:
        """Cancel the call."""
        self.call.cancel()
        self._ended.put(None)

    def finish(self) -> Answer:
        """Read the whole answer."""
        values: list[Any] = []
        try:
            if self._streams:
                values.extend(MessageToDict(each) for each in self.call)
            else:
                values.append(MessageToDict(self.call.result()))
        except grpc.RpcError as error:
            return Answer(values, self._problem(error))
        finally:
            self._ended.put(None)
        return Answer(values)

    def _problem(self, error: Any) -> Problem:
        status = rpc_status.from_call(error)
        violations: list[str] = []
        after = None
        for packed in status.details if status else ():
            bad, retry = BadRequest(), RetryInfo()
            if packed.Unpack(bad):
                violations += [each.field for each in bad.field_violations]
            elif packed.Unpack(retry):
                after = retry.retry_delay.ToMilliseconds()
        return Problem(error.code().name, error.details(), tuple(violations), after)
