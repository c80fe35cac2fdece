"""What handlers and middleware see of a call, and what becomes of their errors, on the wire."""

import time
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from grpc_status import rpc_status
from twisted.internet.defer import Deferred

from storagegate import GrpcError, ServiceError
from tests.wire.rpc.applicationcase import PATIENCE, ApplicationCase, read, write


class ValidationError(Exception):
    """An error that is known by its name."""


class DatabaseError(Exception):
    """Another one."""


class CallTests(ApplicationCase):
    """The call, as middleware and handlers see it."""

    async def test_facts(self) -> None:
        """Request, method, metadata, peer and deadline are there; a middleware sets the user."""

        async def known(call: Any, next: Any) -> Any:
            call.user = {"id": call.metadata.get("x-user")[0]}
            return await next()

        async def tell(request: Any, call: Any) -> Any:
            seconds = None if call.deadline is None else call.deadline - time.time()
            return {
                "request": call.request,
                "method": call.method,
                "all": call.metadata.get("x-user"),
                "none": call.metadata.get("x-other"),
                "first": call.metadata.getMap()["x-user"],
                "bytes": call.metadata.get("x-bin")[0].hex(),
                "user": call.user,
                "peer": call.getPeer(),
                "seconds": seconds,
                "cancelled": call.cancelled,
            }

        self.app.use(known).addService(name="Probe", methods={"tell": {"handler": tell}})
        metadata = (("x-user", "ada"), ("x-user", "alan"), ("x-bin", b"\0\xff"))
        told = await self.unary("/Probe/tell", {"n": 1}, metadata=metadata, timeout=200)
        self.assertRegex(told.pop("peer"), r"\A127\.0\.0\.1:\d+\Z")
        seconds = told.pop("seconds")
        # C-core rounds a deadline up, to whole seconds at this length.
        self.assertTrue(100 < seconds <= 202, seconds)
        expected = {
            "request": {"n": 1},
            "method": "tell",
            "all": ["ada", "alan"],
            "none": [],
            "first": "ada",
            "bytes": "00ff",
            "user": {"id": "ada"},
            "cancelled": False,
        }
        self.assertEqual(told, expected)
        told = await self.unary("/Probe/tell", metadata=metadata, timeout=None)
        self.assertIsNone(told["seconds"])

    async def test_metadata(self) -> None:
        """Metadata go out before the response, trailers with the status, of an error as well."""

        async def tell(request: Any, call: Any) -> Any:
            call.sendMetadata({"x-first": "1"})
            call.setTrailers({"x-last": ["2", "3"], "x-bin": b"\0\xff"})
            if request:
                raise GrpcError("ABORTED", "asked for")
            return {}

        self.app.addService(name="Probe", methods={"tell": {"handler": tell}})

        def use(channel: grpc.Channel) -> Any:
            method = channel.unary_unary("/Probe/tell", write, read)
            _, call = method.with_call({}, timeout=PATIENCE)
            try:
                method({"fail": True}, timeout=PATIENCE)
            except grpc.RpcError as error:
                return call, error
            raise self.failureException("the call did not fail")

        for call in await self.ask(use):
            self.assertEqual(list(call.initial_metadata()), [("x-first", "1")])
            trailers = [("x-last", "2"), ("x-last", "3"), ("x-bin", b"\0\xff")]
            self.assertEqual(list(call.trailing_metadata()), trailers)


class MiddlewareTests(ApplicationCase):
    """C{use(async (call, next))}."""

    async def test_chain(self) -> None:
        """The first is outermost; each goes on by next, around every kind of call."""
        seen: list[str] = []

        def around(name: str) -> Any:
            async def middleware(call: Any, next: Any) -> Any:
                seen.append(f"{name} {call.method}")
                response = await next()
                seen.append(f"{name} after")
                return response

            return middleware

        async def stream(request: Any) -> Any:
            yield {"n": 1}
            seen.append("item")

        def single(request: Any) -> Any:
            seen.append("handler")
            return {}

        self.app.use(around("a")).use(around("b"))
        self.app.addService(name="Probe", methods={"single": single, "stream": stream})
        await self.unary("/Probe/single")
        inner = ["a single", "b single", "handler", "b after", "a after"]
        self.assertEqual(seen, inner)
        seen.clear()
        await self.ask(lambda channel: list(channel.unary_stream("/Probe/stream")(b"")))
        self.assertEqual(seen, ["a stream", "b stream", "item", "b after", "a after"])

    async def test_throws(self) -> None:
        """What it throws is the call's status, by the same rules as a handler's."""

        async def guard(call: Any, next: Any) -> Any:
            if not call.metadata.get("authorization"):
                raise GrpcError("UNAUTHENTICATED", "Missing authorization")
            raise RuntimeError("a secret")

        self.app.use(guard).addService(name="Probe", methods={"echo": lambda request: request})
        self.assertEqual(
            await self.refused("/Probe/echo"), ("UNAUTHENTICATED", "Missing authorization")
        )
        self.assertEqual(
            await self.refused("/Probe/echo", metadata=(("authorization", "x"),)),
            ("INTERNAL", "Internal error"),
        )
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class ErrorTests(ApplicationCase):
    """Statuses."""

    async def test_rules(self) -> None:
        """A status is given by name or number; known names are known; the rest says nothing."""
        raised: list[Any] = []

        def fail(request: Any) -> Any:
            raise raised[-1]

        self.app.addService(name="Probe", methods={"fail": {"handler": fail}})
        for error, code, message in (
            (GrpcError("INVALID_ARGUMENT", "no id"), "INVALID_ARGUMENT", "no id"),
            (GrpcError(5, "absent"), "NOT_FOUND", "absent"),
            (GrpcError(grpc.StatusCode.ALREADY_EXISTS, "twice"), "ALREADY_EXISTS", "twice"),
            (GrpcError("PERMISSION_DENIED"), "PERMISSION_DENIED", ""),
            (GrpcError(8, "slower"), "RESOURCE_EXHAUSTED", "slower"),
            (GrpcError("INTERNAL", "told on purpose"), "INTERNAL", "told on purpose"),
            (GrpcError("unavailable", "later"), "UNAVAILABLE", "later"),
            (GrpcError(16, "who?"), "UNAUTHENTICATED", "who?"),
            (ServiceError("GONE", "it is", 404), "NOT_FOUND", "it is"),
            (ServiceError("BROKEN", "it is"), "INTERNAL", "it is"),
            (ServiceError("BUSY", "it is", grpcCode="ABORTED"), "ABORTED", "it is"),
            (ValidationError("email"), "INVALID_ARGUMENT", "email"),
            (DatabaseError("a secret"), "UNAVAILABLE", "Database temporarily unavailable"),
            (KeyError("a secret"), "INTERNAL", "Internal error"),
        ):
            raised.append(error)
            self.assertEqual(await self.refused("/Probe/fail"), (code, message))
        for kind in (DatabaseError, KeyError):
            self.assertEqual(len(self.flushLoggedErrors(kind)), 1)

    async def test_details(self) -> None:
        """Details are those of C{google.rpc.Status}, as grpcio's own package reads it."""

        def fail(request: Any) -> Any:
            raise GrpcError("NOT_FOUND", "absent", {"id": "7"})

        self.app.addService(name="Probe", methods={"fail": {"handler": fail}})
        error = await self.assertFailure(
            Deferred.fromCoroutine(self.unary("/Probe/fail")), grpc.RpcError
        )
        status = rpc_status.from_call(error)
        assert status is not None
        struct = Struct()
        self.assertTrue(status.details[0].Unpack(struct))
        self.assertEqual((status.code, status.message), (5, "absent"))
        self.assertEqual(MessageToDict(struct), {"id": "7"})
