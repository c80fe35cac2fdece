"""The applications and clients of gRPC in a test, on the native engine."""

from typing import Any

from attrs import evolve

from storagegate.rpc import application, client

_make = application.makeServerEngine
_makeClient = client.makeClientEngine


def makeNativeEngine(reactor: Any, options: Any, traffic: Any, budget: Any) -> Any:
    """Make the native engine, whichever one the options name."""
    return _make(reactor, evolve(options, engine="native"), traffic, budget)


def makeNativeClient(target: str, tls: Any, options: Any, reactor: Any) -> Any:
    """Make a client's native engine, whichever one the options name."""
    return _makeClient(target, tls, evolve(options, engine="native"), reactor)


class OnNativeEngine:
    """Comes before a case, whose servers then have the native engine."""

    def setUp(self) -> Any:
        """Replace the engine of servers."""
        self.patch(application, "makeServerEngine", makeNativeEngine)  # type: ignore[attr-defined]
        return super().setUp()  # type: ignore[misc]


class WithNativeClients:
    """Comes before a case, whose clients then have the native engine."""

    def setUp(self) -> Any:
        """Replace the engine of clients."""
        self.patch(client, "makeClientEngine", makeNativeClient)  # type: ignore[attr-defined]
        return super().setUp()  # type: ignore[misc]
