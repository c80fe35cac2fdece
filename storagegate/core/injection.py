"""
Handlers of methods that have dependencies, for the gateway and for gRPC.

The parameters with C{Depends} or a C{Header} marker are made for each call, and the others are
passed as to any handler: C{(request, context)}, C{(request)}, C{(call)}.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from storagegate.core.definitions import DefinitionError
from storagegate.core.schemas import ResultStream

if TYPE_CHECKING:
    from storagegate.core.dependencies import CallPlan, DependencyCalls, DependencyContainer
    from storagegate.core.parameters import FunctionParameter

_CONTEXTS = ("context", "call")
"""The names of a second parameter that is passed although it has a default."""


def injectedHandler(
    handler: Callable[..., Any],
    name: str,
    container: "Callable[[], DependencyContainer]",
    arguments: int,
    streams: bool,
) -> Callable[..., Any] | None:
    """
    Adapt a handler with dependencies.

    @param name: The name of its method, for errors.
    @param container: Returns the dependencies of the application.
    @param arguments: The number of arguments of the returned function: C{(request, context)}, or
        the call alone. The last one is the context of the call.
    @param streams: Whether the handler returns a stream of responses.
    @return: A function of that number of arguments; C{None} for a handler without dependencies.
    @raise DefinitionError: If a parameter has no source.
    """
    # There is no dependency before the module of its marker is imported.
    if "storagegate.core.parameters" not in sys.modules:
        return None
    from storagegate.core.dependencies import PlanMaker, contextReader
    from storagegate.core.parameters import readParameters

    try:
        parameters = readParameters(handler)
    except (TypeError, ValueError) as error:
        if isinstance(error, DefinitionError):
            raise
        # Some built-in functions have no signature.
        return None
    if all(each.marker is None for each in parameters):
        return None
    plain = [each for each in parameters if each.marker is None]
    passed = _passed(plain, arguments, name)
    # The positions are those of the plan.
    parameters.sort(key=lambda each: each.isKeyword)

    def make(parameter: "FunctionParameter", text: str) -> Callable[[Any], Any]:
        if parameter in passed:
            return lambda call: None
        return contextReader(parameter, text)

    plan = PlanMaker(contextReader).plan(handler, parameters, make)
    positions = [parameters.index(each) for each in passed]
    found = InjectedHandler(plan, positions, container, name, streams)
    return found.callWithContext if arguments == 2 else found


def _passed(
    plain: "list[FunctionParameter]", arguments: int, name: str
) -> "list[FunctionParameter]":
    """Return the parameters that the arguments are passed to."""
    if not plain:
        raise DefinitionError(f"{name} takes its request as its first parameter")
    passed = plain[:1]
    if arguments == 2 and len(plain) > 1 and (plain[1].isRequired or plain[1].name in _CONTEXTS):
        passed = plain[:2]
    missing = [each.name for each in plain[len(passed) :] if each.isRequired]
    if missing:
        raise DefinitionError(f"{name} has parameters without a source: {', '.join(missing)}")
    return passed


class InjectedHandler:
    """A handler whose dependencies are made for each call."""

    def __init__(
        self,
        plan: "CallPlan",
        positions: list[int],
        container: "Callable[[], DependencyContainer]",
        name: str,
        streams: bool,
    ) -> None:
        """
        @param positions: The positions of the arguments among the values of the plan.
        """
        self._plan = plan
        self._positions = positions
        self._container = container
        self._name = name
        self._streams = streams

    def __call__(self, call: Any) -> Any:
        """Handle a call, which is the only argument."""
        return self._begin((call,), call)

    def callWithContext(self, request: Any, context: Any) -> Any:
        """Handle a request with the context of its call."""
        return self._begin((request, context), context)

    def _begin(self, arguments: tuple[Any, ...], context: Any) -> Any:
        # With the first call, after the import of its user.
        from storagegate.core.dependencies import DependencyCalls

        calls = DependencyCalls(context, self._container())
        try:
            values = self._plan.begin(calls)
            if type(values) is CoroutineType:
                return self._finish(calls, self._applyLater(calls, values, arguments))
            result = self._apply(calls, values, arguments)
        except BaseException as error:
            calls.endAfterAnswer(error)
            raise
        if hasattr(result, "__await__"):
            return self._finish(calls, result)
        return self._result(calls, result)

    def _apply(
        self, calls: "DependencyCalls", values: list[Any], arguments: tuple[Any, ...]
    ) -> Any:
        calls.finish(self._plan, values)
        for position, argument in zip(self._positions, arguments, strict=False):
            values[position] = argument
        return self._plan.apply(values)

    async def _applyLater(
        self, calls: "DependencyCalls", values: Awaitable[list[Any]], arguments: tuple[Any, ...]
    ) -> Any:
        result = self._apply(calls, await values, arguments)
        return await result if hasattr(result, "__await__") else result

    async def _finish(self, calls: "DependencyCalls", result: Awaitable[Any]) -> Any:
        try:
            found = await result
        except BaseException as error:
            calls.endAfterAnswer(error)
            raise
        return self._result(calls, found)

    def _result(self, calls: "DependencyCalls", result: Any) -> Any:
        """Return a result; its dependencies end after the answer, or with the stream."""
        if not calls.hasOpened:
            return result
        if self._streams:
            return _DependentResults(calls, self._stream(calls, result))
        calls.endAfterAnswer(None)
        return result

    async def _stream(self, calls: "DependencyCalls", results: Any) -> AsyncIterator[Any]:
        try:
            async with ResultStream(results, self._name) as items:
                async for item in items:
                    yield item
        except BaseException as error:
            calls.endAfterAnswer(error)
            raise
        calls.endAfterAnswer(None)


class _DependentResults:
    """A stream whose dependencies end when it is closed, although it was never begun."""

    def __init__(self, calls: "DependencyCalls", results: Any) -> None:
        """
        @param results: An asynchronous generator, which ends the dependencies once it has begun.
        """
        self._calls = calls
        self._results = results
        self._isBegun = False

    def __aiter__(self) -> "_DependentResults":
        return self

    def __anext__(self) -> Awaitable[Any]:
        self._isBegun = True
        item: Awaitable[Any] = self._results.__anext__()
        return item

    async def aclose(self) -> None:
        """Close the stream, and end the dependencies if that did not."""
        await self._results.aclose()
        if not self._isBegun:
            self._isBegun = True
            self._calls.endAfterAnswer(None)
