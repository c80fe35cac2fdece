"""
Dependencies: values that functions make for the parameters of other functions.

A L{PlanMaker} compiles the parameters of a function when a handler is registered; the resulting
L{CallPlan} makes the arguments of each call without a look at the signature. Dependencies come
first, in the order of the parameters, so that one which refuses the call does so before anything
else is read. The front end reads the other parameters.

A value is made once for a call (L{DependencyCalls}) or once for an application
(L{DependencyContainer}). Generators end in the reverse order: those of a call when its answer has
gone and its handler has ended, those of an application when it closes.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import CoroutineType
from typing import Any, get_origin

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from storagegate.core.context import CallContext
from storagegate.core.definitions import DefinitionError
from storagegate.core.errors import ServiceError
from storagegate.core.parameters import (
    Dependency,
    FunctionParameter,
    Header,
    nameOfFunction,
    readParameters,
    textReader,
    underlying,
)
from storagegate.core.streams import SharedFuture
from storagegate.core.task import IdleWaiters, fromCoroutine
from storagegate.core.validationerrors import MAX_MISTAKES, errorDetails

Reader = Callable[[Any], Any]
"""Reads the value of a parameter from the call of a front end."""

ReaderMaker = Callable[[FunctionParameter, str], Reader]
"""Makes the reader of a parameter; the text names the parameter, for a C{DefinitionError}."""

Mistake = tuple[str, str]
"""The path and the message of a value that does not fit."""

_ABSENT = object()

_FAILED = object()
"""The value of a dependency that was not made, because of a mistake in the request."""

_log = Logger()


class CallPlan:
    """
    Makes the arguments of a function, and calls it.

    @ivar dependencies: The dependencies, with the positions of their values.
    @ivar readers: The readers of the other parameters, with the positions of their values.
    """

    __slots__ = ("_blank", "_count", "_keywords", "dependencies", "function", "readers")

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: Sequence[FunctionParameter],
        dependencies: Sequence[tuple[int, "DependencyNode"]],
        readers: Sequence[tuple[int, Reader]],
    ) -> None:
        self.function = function
        self.dependencies = tuple(dependencies)
        self.readers = tuple(readers)
        self._blank = [None] * len(parameters)
        self._keywords = tuple(each.name for each in parameters if each.isKeyword)
        self._count = len(parameters) - len(self._keywords)

    def blank(self) -> list[Any]:
        """Return a list for the values of a function without dependencies."""
        return self._blank.copy()

    def begin(self, calls: "DependencyCalls") -> Any:
        """
        Make the values of the dependencies.

        @return: A list for all values, or a coroutine that returns it.
        """
        values: list[Any] = self._blank.copy()
        if self.dependencies:
            for index, (position, node) in enumerate(self.dependencies):
                value = calls.resolve(node)
                if type(value) is _Pending:
                    return self._beginLater(calls, values, index, value.coroutine)
                values[position] = value
        return values

    async def _beginLater(
        self, calls: "DependencyCalls", values: list[Any], index: int, first: Awaitable[Any]
    ) -> list[Any]:
        values[self.dependencies[index][0]] = await first
        for position, node in self.dependencies[index + 1 :]:
            value = calls.resolve(node)
            values[position] = await value.coroutine if type(value) is _Pending else value
        return values

    def read(self, call: Any, values: list[Any]) -> Sequence[Mistake]:
        """
        Read the other values.

        @param call: The call, as the readers take it.
        @param values: The result of L{begin}.
        @return: The mistakes of the request; their parameters have no values.
        """
        mistakes: Sequence[Mistake] = ()
        for position, reader in self.readers:
            try:
                values[position] = reader(call)
            except ServiceError as error:
                if error.code != "VALIDATION_ERROR":
                    raise
                found = [(each["path"], each["message"]) for each in error.details]
                mistakes = [*mistakes, *found][:MAX_MISTAKES]
        return mistakes

    def apply(self, values: list[Any]) -> Any:
        """Call the function with the values."""
        if not self._keywords:
            return self.function(*values)
        count = self._count
        return self.function(
            *values[:count], **dict(zip(self._keywords, values[count:], strict=True))
        )


@define(eq=False)
class DependencyNode:
    """
    A dependency of a plan.

    @ivar function: Its function, which is also the key of its value.
    @ivar plan: Makes its arguments.
    @ivar isShared: Whether its value is kept for the application.
    @ivar kind: C{generator}, C{asyncgenerator}, or C{function}.
    """

    function: Callable[..., Any]
    plan: CallPlan
    isShared: bool
    kind: str
    _maker: "PlanMaker" = field(repr=False)

    def overridden(self, overrides: Mapping[Any, Callable[..., Any]]) -> "DependencyNode":
        """Return the node to call in place of this one."""
        function = overrides.get(self.function)
        if function is None:
            return self
        scope: Any = "application" if self.isShared else "request"
        return self._maker.node(Dependency(function, scope))


class _Pending:
    """A value that has to be awaited. A value that is awaitable itself is none."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine


def _kindOf(function: Callable[..., Any]) -> str:
    inner = underlying(function)
    if inspect.isasyncgenfunction(inner):
        return "asyncgenerator"
    return "generator" if inspect.isgeneratorfunction(inner) else "function"


class PlanMaker:
    """Compiles the plans of a handler and of the dependencies below it."""

    def __init__(self, makeReader: ReaderMaker, above: list[Any] | None = None) -> None:
        """
        @param makeReader: Makes the readers of parameters that are no dependencies. It raises
            C{DefinitionError} for a parameter without a source.
        @param above: The functions whose plans are being compiled; C{None} for none.
        """
        self._makeReader = makeReader
        self._nodes: dict[tuple[Any, str], DependencyNode] = {}
        self._above: list[Any] = [] if above is None else above

    def plan(
        self,
        function: Callable[..., Any],
        parameters: Sequence[FunctionParameter] | None = None,
        makeReader: ReaderMaker | None = None,
    ) -> CallPlan:
        """
        Compile the plan of a function.

        @param parameters: Its parameters; C{None} to read them here.
        @param makeReader: Replaces the reader maker for this function.
        @raise DefinitionError: If a parameter has no source, or dependencies form a cycle.
        """
        if parameters is None:
            parameters = readParameters(function)
        # Arguments are passed by position as far as possible.
        parameters = sorted(parameters, key=lambda each: each.isKeyword)
        dependencies: list[tuple[int, DependencyNode]] = []
        readers: list[tuple[int, Reader]] = []
        make = makeReader or self._makeReader
        for position, each in enumerate(parameters):
            if isinstance(each.marker, Dependency):
                dependencies.append((position, self.node(each.marker)))
            else:
                name = f"the parameter {each.name} of {nameOfFunction(function)}"
                readers.append((position, make(each, name)))
        return CallPlan(function, parameters, dependencies, readers)

    def node(self, dependency: Dependency) -> DependencyNode:
        """
        Compile a dependency, once for its function and scope.

        @raise DefinitionError: See L{plan}.
        """
        function, scope = dependency.function, dependency.scope
        key = function, scope
        if key in self._nodes:
            return self._nodes[key]
        if function in self._above:
            raise DefinitionError(f"{nameOfFunction(function)} depends on itself")
        isShared = scope == "application"
        self._above.append(function)
        try:
            if isShared:
                plan = PlanMaker(_refuseRequest, self._above).plan(function)
                for _, inner in plan.dependencies:
                    if not inner.isShared:
                        raise DefinitionError(
                            f"{nameOfFunction(function)} has the scope of the application and "
                            f"depends on {nameOfFunction(inner.function)}, which belongs to a "
                            "request: give it the same scope"
                        )
            else:
                plan = self.plan(function)
        finally:
            self._above.pop()
        node = DependencyNode(function, plan, isShared, _kindOf(function), self)
        self._nodes[key] = node
        return node


def _refuseRequest(parameter: FunctionParameter, name: str) -> Reader:
    if not parameter.isRequired:
        default = parameter.default
        return lambda call: default
    raise DefinitionError(
        f"{name} belongs to a request, and the function has the scope of the application"
    )


class DependencyCalls:
    """
    The dependencies of one call, or of an application.

    @ivar call: The call, as the readers of the front end take it.
    @ivar mistakes: The mistakes of the request.
    """

    __slots__ = ("_container", "_opened", "_values", "call", "mistakes")

    def __init__(self, call: Any, container: "DependencyContainer") -> None:
        self.call = call
        self._container = container
        self._values: dict[Any, Any] = {}
        # The generators to end, oldest first.
        self._opened: list[tuple[str, Any]] = []
        self.mistakes: Sequence[Mistake] = ()

    def complete(self, plan: CallPlan, values: list[Any]) -> bool:
        """
        Read the remaining values of a plan.

        @param values: The result of C{plan.begin}.
        @return: Whether all values are there; otherwise the mistakes are kept.
        """
        isComplete = not self.mistakes or not any(each is _FAILED for each in values)
        found = plan.read(self.call, values)
        if found:
            self.mistakes = [*self.mistakes, *found][:MAX_MISTAKES]
        return isComplete and not found

    def finish(self, plan: CallPlan, values: list[Any]) -> None:
        """
        Read the remaining values of the handler.

        @raise ServiceError: C{VALIDATION_ERROR}, with all mistakes of the request.
        """
        if not self.complete(plan, values):
            raise errorDetails(self.mistakes)

    @property
    def hasOpened(self) -> bool:
        """Return whether generators wait for the end of the call."""
        return bool(self._opened)

    def resolve(self, node: DependencyNode) -> Any:
        """Return the value of a dependency, or the L{_Pending} one."""
        container = self._container
        overrides = container.overrides
        if overrides:
            node = node.overridden(overrides)
        if node.isShared:
            return container.resolve(node)
        value = self._values.get(node.function, _ABSENT)
        return self.make(node) if value is _ABSENT else value

    def known(self, node: DependencyNode) -> Any:
        """Return the value of a dependency if it is made, otherwise L{_ABSENT}."""
        return self._values.get(node.function, _ABSENT)

    def make(self, node: DependencyNode) -> Any:
        """Make the value of a dependency; see L{resolve}."""
        values = node.plan.begin(self)
        if type(values) is CoroutineType:
            return _Pending(self._makeLater(node, values))
        return self._make(node, values)

    async def _makeLater(self, node: DependencyNode, values: Awaitable[Any]) -> Any:
        value = self._make(node, await values)
        return await value.coroutine if type(value) is _Pending else value

    def _make(self, node: DependencyNode, values: list[Any]) -> Any:
        if not self.complete(node.plan, values):
            value = _FAILED
        else:
            value = node.plan.apply(values)
            if node.kind == "generator":
                generator, value = value, next(value, _ABSENT)
                if value is _ABSENT:
                    raise RuntimeError(f"{nameOfFunction(node.function)} ended without a yield")
                self._opened.append((nameOfFunction(node.function), generator))
            elif node.kind == "asyncgenerator":
                return _Pending(self._open(node, value))
            elif hasattr(value, "__await__"):
                return _Pending(self._wait(node, value))
        self._values[node.function] = value
        return value

    async def _wait(self, node: DependencyNode, waiting: Awaitable[Any]) -> Any:
        value = self._values[node.function] = await waiting
        return value

    async def _open(self, node: DependencyNode, generator: Any) -> Any:
        value = await anext(generator, _ABSENT)
        if value is _ABSENT:
            raise RuntimeError(f"{nameOfFunction(node.function)} ended without a yield")
        self._opened.append((nameOfFunction(node.function), generator))
        self._values[node.function] = value
        return value

    def end(self, error: BaseException | None = None) -> None:
        """
        End the generators, in the background as far as they wait.

        @param error: The error of the handler, which is raised at their C{yield}.
        """
        if self._opened:
            self._container.endLater(self.close(error))

    def endAfterAnswer(self, error: BaseException | None) -> None:
        """End the generators when the caller has sent the answer, which it now gets. See L{end}."""
        if self._opened:
            self._container.endAfterAnswer(self, error)

    async def close(self, error: BaseException | None = None) -> None:
        """End the generators. Their own errors are logged. See L{end}."""
        try:
            while self._opened:
                name, generator = self._opened.pop()
                try:
                    if hasattr(generator, "asend"):
                        await _finishAsync(generator, error)
                    else:
                        _finish(generator, error)
                    error = None
                except BaseException as raised:
                    if raised is not error:
                        _log.failure("the clean-up of {name} failed", name=name)
                    error = raised
            self._values.clear()
        finally:
            # Its traceback refers to this frame.
            del error


def _finish(generator: Any, error: BaseException | None) -> None:
    try:
        if error is None:
            next(generator)
        else:
            generator.throw(error)
    except StopIteration:
        return
    generator.close()
    raise RuntimeError("a dependency yields once")


async def _finishAsync(generator: Any, error: BaseException | None) -> None:
    try:
        if error is None:
            await anext(generator)
        else:
            await generator.athrow(error)
    except StopAsyncIteration:
        return
    await generator.aclose()
    raise RuntimeError("a dependency yields once")


class DependencyContainer:
    """
    The dependencies of an application.

    Applications that are served together may share one. It closes with the last of them.

    @ivar overrides: Functions that are called in place of others, for tests.
    @ivar clock: Schedules the ends of calls after their answers; C{None} before it is served.
    """

    def __init__(self) -> None:
        self.clock: Any = None
        self.overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._shared = DependencyCalls(None, self)
        self._making: dict[Any, SharedFuture[Any]] = {}
        self._ending = 0
        self._idle = IdleWaiters()
        self._owners: list[Callable[[], bool]] = []

    def resolve(self, node: DependencyNode) -> Any:
        """Return the value of a dependency of the application, or the L{_Pending} one."""
        value = self._shared.known(node)
        if value is not _ABSENT:
            return value
        making = self._making.get(node.function)
        if making is not None:
            return _Pending(_result(making))
        value = self._shared.make(node)
        if type(value) is not _Pending:
            return value
        # A task of its own: a client that disconnects cancels only its own wait.
        making = self._making[node.function] = SharedFuture()
        fromCoroutine(self._makeShared(node, making, value.coroutine))
        return _Pending(_result(making))

    async def _makeShared(
        self, node: DependencyNode, making: SharedFuture[Any], value: Awaitable[Any]
    ) -> None:
        try:
            found = await value
        except BaseException as error:
            del self._making[node.function]
            making.fail(error)
        else:
            del self._making[node.function]
            making.set(found)

    def endAfterAnswer(self, calls: DependencyCalls, error: BaseException | None) -> None:
        """End the generators of a call in the next iteration of the reactor."""
        if self.clock is None:
            calls.end(error)
        else:
            # Closing waits for it.
            self._ending += 1
            self.clock.callLater(0, self._endNow, calls, error)

    def _endNow(self, calls: DependencyCalls, error: BaseException | None) -> None:
        calls.end(error)
        self._ended(None)

    def endLater(self, closing: Coroutine[Any, Any, None]) -> None:
        """Run the end of a call's generators."""
        self._ending += 1
        fromCoroutine(closing).addBoth(self._ended)

    def _ended(self, result: Any) -> None:
        self._ending -= 1
        if not self._ending:
            self._idle.notify()

    def join(self, isServing: Callable[[], bool]) -> None:
        """
        Add an application.

        @param isServing: Returns whether it serves; see L{close}.
        """
        self._owners.append(isServing)

    def close(self) -> Deferred[None]:
        """
        End the generators of the application, unless another one still serves with them.

        @return: Fires when they have ended, and those of all calls.
        """
        if any(isServing() for isServing in self._owners):
            return succeed(None)
        return fromCoroutine(self._close())

    async def _close(self) -> None:
        await self._idle.wait(self._ending > 0)
        for making in list(self._making.values()):
            try:
                await making.wait()
            except Exception:
                # The caller that waits for the value reports it.
                continue
        await self._shared.close()


async def _result(making: SharedFuture[Any]) -> Any:
    return await making.wait()


def contextReader(parameter: FunctionParameter, name: str) -> Reader:
    """
    Make the reader of a parameter that every transport has: the call itself, or a header field.

    @param parameter: Annotated as C{CallContext}, or marked
        as C{Header}.
    @param name: Names the parameter, for the error.
    @raise DefinitionError: If it is neither.
    """
    if isContext(parameter.base):
        return _itself
    if isinstance(parameter.marker, Header):
        return headerReader(parameter, name)
    if not parameter.isRequired:
        default = parameter.default
        return lambda call: default
    raise DefinitionError(f"{name} has no source: annotate it as CallContext, or give it Depends")


def isContext(found: Any) -> bool:
    """Return whether a type is that of the context of a call over any transport."""
    return (get_origin(found) or found) is CallContext


def _itself(call: Any) -> Any:
    return call


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def headerName(name: str) -> str:
    """Return the header field of a parameter without an alias: C{userAgent} is C{user-agent}."""
    return _HUMP.sub("-", name).replace("_", "-").lower()


def headerReader(parameter: FunctionParameter, name: str) -> Reader:
    """
    Make the reader of a header field.

    @param parameter: Marked as C{Header}; with a list as its
        type, it holds the parts of the field between commas.
    @param name: Names the parameter, for the error.
    @raise DefinitionError: If text cannot be converted to its type.
    """
    field = parameter.alias or headerName(parameter.name)
    reader = textReader(parameter, name)

    convert = reader.bound(field)

    def read(call: Any) -> Any:
        value = call.headers.get(field)
        if value is not None and reader.isList:
            value = [each.strip() for each in value.split(",")]
        return convert(value)

    return read
