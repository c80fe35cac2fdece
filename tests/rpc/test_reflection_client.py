"""What a client makes of a server's reflection, be it as it may."""

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from storagegate.core.errors import GrpcError
from storagegate.rpc.client import ServiceClient
from storagegate.rpc.interfaces import (
    CallOptions,
    ClientClosedError,
    IClientCall,
    IClientEngine,
    Metadata,
    UnaryResult,
)
from storagegate.rpc.protos import standardService
from storagegate.rpc.reflectionclient import ReflectionError, fetchServices

(_METHOD,) = standardService("reflection").methods.values()


def file(name: str, *imports: str, service: str = "", message: str = "") -> bytes:
    """Make a file of the package p."""
    made = FileDescriptorProto(name=name, package="p", syntax="proto3", dependency=imports)
    if message:
        made.message_type.add(name=message)
    if service:
        method = made.service.add(name=service).method.add(name="Do")
        method.input_type = method.output_type = ".p.M"
    return made.SerializeToString()


def files(*wires: bytes) -> dict[str, Any]:
    """Make the answer that has files."""
    return {"fileDescriptorResponse": {"fileDescriptorProto": list(wires)}}


@implementer(IClientCall)
class _Call:
    """A conversation that is answered at once."""

    def __init__(self, answer: Callable[[str, str], Any], status: int) -> None:
        self._answer = answer
        self._status = status
        self._answers: list[bytes | None] = []
        self.asked: list[tuple[str, str]] = []
        self.isCancelled = False

    def send(self, message: bytes) -> bool:
        """Take a question."""
        ((kind, value),) = _METHOD.request.decode(message).items()
        self.asked.append((kind, value))
        answer = self._answer(kind, value)
        if isinstance(answer, dict):
            answer = _METHOD.response.encode(answer)
        self._answers.append(answer)
        return True

    def sendEnd(self) -> None:
        """Take the end."""

    def drained(self) -> Deferred[None]:
        """There is room."""
        return Deferred()

    def read(self, got: Callable[[bytes | None], object]) -> None:
        """Give the answer."""
        got(self._answers.pop(0))

    def begun(self) -> Deferred[Metadata]:
        """Never tell."""
        return Deferred()

    def ended(self) -> Deferred[tuple[int, str, Metadata]]:
        """Tell how it ended."""
        ended: Deferred[tuple[int, str, Metadata]] = Deferred()
        ended.callback((self._status, "over", ()))
        return ended

    def cancel(self) -> None:
        """End."""
        self.isCancelled = True


@implementer(IClientEngine)
class _Engine:
    """A server that has nothing but reflection, of some versions."""

    def __init__(self, answer: Callable[[str, str], Any], *versions: str) -> None:
        self.isClosed = False
        self.counted: set[str] = set()
        self.closesAfter = -1
        self.calls: list[_Call] = []
        self._answer = answer
        self._versions = versions

    def call(
        self,
        path: str,
        options: CallOptions,
        request: bytes | None = None,
    ) -> _Call:
        """Begin a conversation."""
        if self.closesAfter == len(self.calls):
            raise ClientClosedError
        isThere = any(f".{version}." in path for version in self._versions)
        call = _Call(self._answer if isThere else lambda kind, value: None, 0 if isThere else 12)
        self.calls.append(call)
        return call

    def exchange(
        self,
        path: str,
        options: CallOptions,
        request: bytes,
        done: Callable[[UnaryResult], object],
    ) -> Callable[[], None]:
        """Reflection has no unary calls."""
        raise NotImplementedError

    def close(self) -> Deferred[None]:
        """Nothing is to be closed."""
        return Deferred()


class ReflectedTests(SynchronousTestCase):
    """Answers of all kinds."""

    def learn(self, answer: Any, name: str | None = "p.S", *versions: str) -> Any:
        """Learn of a server that gives these answers: a function, or one for all questions."""
        given = answer if callable(answer) else lambda kind, value: answer
        self.engine = _Engine(given, *(versions or ("v1",)))
        return Deferred.fromCoroutine(fetchServices(self.engine, 0.0, name=name))

    def assertWrong(self, answer: Any, *words: str) -> None:
        """See that answers are refused, and why."""
        error: Any = self.failureResultOf(self.learn(answer), ReflectionError).value
        for word in words:
            self.assertIn(word, str(error))
        self.assertTrue(all(call.isCancelled for call in self.engine.calls))

    def test_fakes(self) -> None:
        """The server here is one as the interfaces have it."""
        engine = _Engine(lambda kind, value: None, "v1")
        self.assertTrue(verifyObject(IClientEngine, engine))
        self.assertTrue(verifyObject(IClientCall, engine.call("", CallOptions())))

    def test_imports(self) -> None:
        """Files that are imported are asked for where they did not come along."""

        def answer(kind: str, value: str) -> Any:
            if kind == "fileByFilename":
                imports = {"a": ("c",), "b": ("c",), "c": ()}[value]
                return files(file(value, *imports, message="M" if value == "c" else ""))
            return files(file("main", "a", "b", "c", service="S"))

        services = self.successResultOf(self.learn(answer))
        self.assertEqual(list(services["p.S"].methods), ["Do"])
        asked = [value for _, value in self.engine.calls[0].asked]
        self.assertEqual(sorted(asked), ["a", "b", "c", "p.S"])

    def test_listed(self) -> None:
        """All services are learned but gRPC's own."""

        def answer(kind: str, value: str) -> Any:
            if kind == "listServices":
                names = ("grpc.health.v1.Health", "p.S", "grpc.reflection.v1.ServerReflection")
                return {"listServicesResponse": {"service": [{"name": name} for name in names]}}
            return files(file("main", service="S", message="M"))

        self.assertEqual(list(self.successResultOf(self.learn(answer, None))), ["p.S"])

    def test_versions(self) -> None:
        """Version 1 is asked first, version 1alpha where that is not there."""
        good = files(file("main", service="S", message="M"))
        for versions, calls in ((("v1", "v1alpha"), 1), (("v1alpha",), 2)):
            self.assertIn("p.S", self.successResultOf(self.learn(good, "p.S", *versions)))
            self.assertEqual(len(self.engine.calls), calls)
        error: Any = self.failureResultOf(self.learn(good, "p.S", "v0"), GrpcError).value
        self.assertEqual(error.statusName, "UNIMPLEMENTED")

    def test_closedBetween(self) -> None:
        """A call that waits when its client is closed is cancelled, at whatever step that is."""
        for versions, steps in (((), 1), ((), 0), (("v1",), 0)):
            engine = _Engine(lambda kind, value: None, *versions)
            engine.closesAfter = steps
            call = ServiceClient(engine, None, Clock()).do(deadlineMs=5000)
            error: Any = self.failureResultOf(call.deferred(), GrpcError).value
            self.assertEqual(error.statusName, "CANCELLED")

    def test_wellKnown(self) -> None:
        """Files of protobuf itself need not come, and what comes under their names is not taken."""
        name = "google/protobuf/timestamp.proto"
        lie = FileDescriptorProto(name=name, package="lie").SerializeToString()
        for extra in ((), (lie,)):
            answer = files(file("main", name, service="S", message="M"), *extra)
            service = self.successResultOf(self.learn(answer))["p.S"]
            (imported,) = service.file.dependencies
            self.assertEqual(imported.package, "google.protobuf")

    def test_wrong(self) -> None:
        """Answers that make no sense are errors that say what is wrong."""
        self.assertWrong(files(), "p.S")
        self.assertWrong({}, "p.S")
        self.assertWrong(files(b"\xff"), "invalid file")
        self.assertWrong(b"\xff", "cannot be read")
        self.assertWrong(None, "ended")
        self.assertWrong({"errorResponse": {"errorCode": 5, "errorMessage": "no"}}, "p.S", "no")
        self.assertWrong(files(file("main", service="S")), "p.S")
        self.assertWrong(files(file("main", service="Other", message="M")), "p.S")

    def test_missingImport(self) -> None:
        """A file that never comes is named; it is asked for once."""
        self.assertWrong(files(file("main", "gone", service="S", message="M")), "gone")
        self.assertEqual(len(self.engine.calls[0].asked), 2)

    def test_circle(self) -> None:
        """Files that import each other are an error, not a search without end."""
        first = file("main", "other", service="S", message="M")
        self.assertWrong(files(first, file("other", "main")), "imports itself")
        self.assertWrong(files(file("main", "main", service="S")), "imports itself")

    def test_endless(self) -> None:
        """A server that has always one more file is stopped."""

        def answer(kind: str, value: str) -> Any:
            number = int(value) + 1 if value.isdigit() else 0
            return files(file(value, str(number), service="S" if value == "p.S" else ""))

        self.assertWrong(answer, "too long")

    def test_huge(self) -> None:
        """So is one whose files are too long."""
        options = FileDescriptorProto(name="x")
        options.options.java_package = "x" * 3_000_000
        wire = options.SerializeToString()
        self.assertWrong(files(*[wire] * 20), "too long")

    def test_manyServices(self) -> None:
        """So is one that has too many services."""
        names = {"listServicesResponse": {"service": [{"name": f"s{n}"} for n in range(1001)]}}
        error: Any = self.failureResultOf(self.learn(names, None), ReflectionError).value
        self.assertIn("1001", str(error))
