"""The applications and clients of gRPC in a test, on the native engine."""

from collections.abc import Collection, Iterable
from types import ModuleType
from typing import Any

from attrs import evolve
from twisted.trial.unittest import TestCase

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


def casesWith(
    base: type, prefix: str, modules: Iterable[ModuleType], place: str, others: Collection[str]
) -> dict[str, type[TestCase]]:
    """
    Make the cases of modules with another engine.

    @param base: Comes before each case.
    @param prefix: Begins the names of the new cases.
    @param place: The name of the module of the new cases.
    @param others: The names, old or new, of cases that are not made.
    """
    made = {}
    for module in modules:
        for name, case in vars(module).items():
            isCase = isinstance(case, type) and issubclass(case, TestCase)
            if not isCase or case.__module__ != module.__name__ or not name.endswith("Tests"):
                continue
            own = f"{prefix}{name}"
            if name not in others and own not in others:
                words = {"__doc__": case.__doc__, "__module__": place}
                made[own] = type(own, (base, case), words)
    return made
