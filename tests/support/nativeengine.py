"""The applications of gRPC that a test serves, on the native engine."""

from typing import Any

from attrs import evolve

from storagegate.rpc import application

_make = application.makeServerEngine


def makeNativeEngine(reactor: Any, options: Any, traffic: Any, budget: Any) -> Any:
    """Make the native engine, whichever one the options name."""
    return _make(reactor, evolve(options, engine="native"), traffic, budget)


class OnNativeEngine:
    """Comes before a case, whose servers then have the native engine."""

    def setUp(self) -> Any:
        """Replace the engine of servers."""
        self.patch(application, "makeServerEngine", makeNativeEngine)  # type: ignore[attr-defined]
        return super().setUp()  # type: ignore[misc]
