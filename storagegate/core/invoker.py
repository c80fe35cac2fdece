"""
The one road that a call takes, whatever wire it came by.

Look up, rate limit, authenticate, validate the request, authorise, middleware, handler, validate
the response, measure: in this order, here and nowhere else. An adapter of a wire makes a context
of what it got, gives it to an L{Invoker} and writes down what comes back.

The methods of services, made ready to be called.

Functions of users that middleware asks about a request.
"""

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from math import ceil
from typing import Any, Protocol

from attrs import define, evolve, field, frozen
from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from storagegate.core.context import RequestContext, rateLimitKey
from storagegate.core.definitions import (
    DefinitionError,
    RateLimit,
    ServiceDefinition,
    ServiceMethod,
    isMethodName,
)
from storagegate.core.errors import (
    GRPC_STATUSES,
    ServiceError,
    asServiceError,
    codedError,
    isExpected,
)
from storagegate.core.ratelimit import Count, IRateLimitStore, MemoryRateLimitStore, RateStoreMaker
from storagegate.core.schemas import Schema, checkedRequests, checkedResults, checkResult
from storagegate.core.task import resolve


@frozen(eq=False)
class MethodEntry:
    """
    A method that can be called.

    @ivar service: The service.
    @ivar name: Its bare name.
    @ivar method: Its definition.
    @ivar input: Checks a request; C{None} for any.
    @ivar output: Checks a response.
    @ivar isPublic: Whether nobody has to be known.
    @ivar rates: Counts its calls; C{None} if they are not limited.
    @ivar streamsRequests: Whether a call has a stream of requests.
    @ivar streamsResponses: Whether it has a stream of responses.
    """

    service: ServiceDefinition
    name: str
    method: ServiceMethod
    input: Schema | None
    output: Schema | None
    isPublic: bool
    limit: RateLimit | None
    rates: IRateLimitStore | None
    handler: Callable[[Any, RequestContext], Any] = field(repr=False)
    streamsRequests: bool = field(init=False)
    streamsResponses: bool = field(init=False)

    @streamsRequests.default
    def _readsStream(self) -> bool:
        return self.method.streamsRequests

    @streamsResponses.default
    def _givesStream(self) -> bool:
        return self.method.streamsResponses

    @property
    def whole(self) -> str:
        """Give its name with that of its service."""
        return f"{self.service.name}.{self.name}"

    @property
    def streaming(self) -> str:
        """Tell how it streams."""
        return self.method.streaming


Hook = Callable[[Any, Any], Any]


def adaptHandler(
    function: Callable[..., Any], name: str, first: str = "req", second: str = "res"
) -> Hook:
    """
    Make a function of C{(req, res)} from one that takes both, or the request alone.

    A second parameter that has a default is the function's own, unless it has the name: the
    C{default} of a dictionary's C{get} is no place for a response.

    @param name: The option that it was given as, for the error; so are the names of what it gets.
    @raise TypeError: If it is no such function.
    """
    if not callable(function):
        raise TypeError(f"{name} is a function of ({first}, {second}), not {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some built-in functions do not tell.
        return function
    takesOne = _takes(signature, 1)
    if _takes(signature, 2) and not (takesOne and _isOwn(signature, second)):
        return function
    if takesOne:
        return lambda one, other: function(one)
    raise TypeError(f"{name} takes ({first}, {second}) or ({first})")


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _isOwn(signature: inspect.Signature, second: str) -> bool:
    parameters = list(signature.parameters.values())
    return len(parameters) > 1 and (
        parameters[1].kind is not inspect.Parameter.VAR_POSITIONAL and parameters[1].name != second
    )


_log = Logger()

OTHERS = "*"
"""What the methods that a service does not name are together, where calls are counted."""


@define
class CallCredentials:
    """
    What a client says of itself.

    Nobody changes it. It is made for every call in 0.1 microseconds; attrs takes 0.3 to make one
    that nobody can change.

    @ivar token: The token of the wire's place for tokens; C{None} if there is none.
    @ivar apiKey: What the place for API keys has, where the wire has one of its own.
    @ivar native: The request, message or call as the wire's own hooks get it.
    @ivar hasFields: Whether tokens and keys come in header fields, each in its own; elsewhere a
        message has one place for both.
    """

    token: str | None = None
    apiKey: str | None = None
    native: Any = None
    hasFields: bool = False


ANONYMOUS = CallCredentials()


class IAuthenticator(Protocol):
    """Who finds out who calls."""

    def authenticate(
        self, context: RequestContext, credentials: CallCredentials, methods: tuple[str, ...]
    ) -> Any:
        """
        Find out who calls.

        @param methods: The providers that the service allows; empty for those of the wire.
        @return: The user, or something to wait for that gives it; C{None} if no provider
            recognised the credentials, or there are none.
        @raise ServiceError: C{UNAUTHENTICATED} if one did and they are not good.
        """


class InvocationObserver(Protocol):
    """Who counts calls."""

    def callStarted(self, context: RequestContext) -> None:
        """Take note of a call that was looked up."""

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """Take note of its end."""


class Invoker:
    """
    Calls the methods of services.

    @ivar services: The services by name.
    @ivar observers: Who counts calls.
    @ivar rateLimit: Holds for every method that has no limit of its own.
    @ivar onUnknown: Called with the wire of a call that is for no method, where observers are not
        told.
    """

    def __init__(
        self,
        authenticator: IAuthenticator,
        observers: Iterable[InvocationObserver] = (),
        rateLimit: RateLimit | None = None,
        now: Callable[[], float] = time.time,
        seconds: Callable[[], float] = time.perf_counter,
        rateStore: RateStoreMaker | None = None,
    ) -> None:
        """
        @param rateLimit: Holds for every method that has no limit of its own.
        @param now: Gives seconds since 1970.
        @param seconds: Gives seconds for measuring.
        @param rateStore: Makes what counts the calls of a method, by its whole name and window;
            without it, they are counted in the memory of this process.
        """
        self.services: dict[str, ServiceDefinition] = {}
        self._authenticator = authenticator
        self.observers = list(observers)
        self.onUnknown: Callable[[str], None] | None = None
        self.rateLimit = rateLimit
        self.now = now
        self._makeRates = rateStore or self._inMemory
        self._seconds = seconds
        self._methods: dict[str, dict[str, MethodEntry]] = {}
        # What answers methods that a service does not name.
        self._others: dict[str, MethodEntry] = {}

    def add(self, service: ServiceDefinition, isKnown: bool = False) -> None:
        """
        Add a service.

        @param isKnown: Whether its schemas are known to be good, so that they need not be compiled
            before the first call.
        @raise DefinitionError: If there is one of its name, or one of its schemas is none.
        """
        if service.name in self.services:
            raise DefinitionError(f"there is a service {service.name} already")
        self._methods[service.name] = {
            name: self._bind(service, name, method, isKnown)
            for name, method in service.methods.items()
        }
        self._others.pop(service.name, None)
        if service.others is not None:
            self._others[service.name] = self._bind(service, OTHERS, service.others, isKnown)
        self.services[service.name] = service

    def replace(self, service: ServiceDefinition, isKnown: bool = False) -> None:
        """
        Add a service in the place of the one of its name, if there is one.

        @param isKnown: See L{add}.
        @raise DefinitionError: If one of its schemas is none.
        """
        self.services.pop(service.name, None)
        self.add(service, isKnown)

    def _bind(
        self, service: ServiceDefinition, name: str, method: ServiceMethod, isKnown: bool
    ) -> MethodEntry:
        whole = f"{service.name}.{name}"
        limit = method.rateLimit or service.rateLimit or self.rateLimit
        required = method.authentication
        if required is None:
            required = service.authentication.required
        return MethodEntry(
            service,
            name,
            method,
            _schema(method.input, f"the input of {whole}", isKnown),
            _schema(method.output, f"the output of {whole}", isKnown),
            not required,
            limit,
            None if limit is None else self._makeRates(whole, limit.window),
            adaptHandler(method.handler, whole, "request", "context"),
        )

    def _inMemory(self, name: str, windowMs: float) -> IRateLimitStore:
        return MemoryRateLimitStore(windowMs, now=self.now)

    def limitAll(self, limit: RateLimit | None) -> None:
        """Limit every method that has no limit of its own; every method gets another store."""
        self.rateLimit = limit
        services, self.services = list(self.services.values()), {}
        for service in services:
            self.add(service)

    def find(self, service: str, method: str, protocol: str | None = None) -> MethodEntry:
        """
        Look a method up.

        @param protocol: The wire of a call that is for it; C{None} where nobody calls it yet.
        @raise ServiceError: C{NOT_FOUND} if there is none.
        """
        methods = self._methods.get(service)
        found = None if methods is None else methods.get(method)
        if found is not None:
            return found
        if service in self._others and isMethodName(method):
            # Made anew for each call, and all of them with one count of calls: whoever makes names
            # up fills nothing.
            return evolve(self._others[service], name=method)
        if protocol is not None and self.onUnknown is not None:
            self.onUnknown(protocol)
        if methods is None:
            raise _notFound("service", service)
        raise _notFound("method", f"{service}.{method}")

    async def call(
        self,
        context: RequestContext,
        request: Any,
        credentials: CallCredentials = ANONYMOUS,
        bound: MethodEntry | None = None,
    ) -> Any:
        """
        Call a method.

        All steps are in this one coroutine, and wait only where there is something to wait for: a
        coroutine for each would take a twentieth more.

        @param context: C{service} and C{method} say which; C{authentication} is filled in.
        @param request: The request, or an asynchronous iterable of them for a method that streams
            requests.
        @param bound: The method, where it was looked up for this call already.
        @return: The result, or for a method that streams responses an asynchronous iterator of
            them, which has to be used up or closed.
        @raise ServiceError: Whatever went wrong; what nobody foresaw is logged here.
        """
        if bound is None:
            bound = self.find(context.service, context.method, context.protocol)
        context.credentials = credentials
        if bound.method is bound.service.others:
            context.metadata["route"] = OTHERS
        began = self._seconds()
        for observer in self.observers:
            observer.callStarted(context)
        try:
            if bound.rates is not None:
                count: Any = bound.rates.increment(rateLimitKey(context.client.address))
                self._checkRate(bound, await count if hasattr(count, "__await__") else count)
            user = self._identify(bound, context, credentials)
            if user is not None and hasattr(user, "__await__"):
                user = await user
            context.authentication = user
            if bound.input is not None:
                request = _checked(bound.input, request, bound.streamsRequests)
            authorize = bound.service.authentication.authorize
            if authorize is not None:
                allowed = authorize(user, bound.name, None if bound.streamsRequests else request)
                _checkAllowed(await allowed if hasattr(allowed, "__await__") else allowed)
            if bound.service.middleware:
                result = await self._step(bound, 0, request, context)
            else:
                result = bound.handler(request, context)
                if hasattr(result, "__await__"):
                    result = await result
            if bound.streamsResponses:
                result = checkedResults(bound.output, bound.whole, result)
            elif bound.output is not None:
                checkResult(bound.output, bound.whole, result)
        except BaseException as error:
            raise self._failed(context, error, began) from error
        if bound.streamsResponses:
            return self._measured(result, context, began)
        self._ended(context, None, began)
        return result

    def _checkRate(self, bound: MethodEntry, count: Count) -> None:
        """Refuse a call that is one too many for its method and its client's address."""
        hits, end = count
        if bound.limit is not None and hits > bound.limit.requests:
            retryAfterMs = max(1, ceil((end - self.now()) * 1000))
            raise codedError("RATE_LIMITED", "Too many calls", {"retryAfterMs": retryAfterMs})

    def _identify(
        self, bound: MethodEntry, context: RequestContext, credentials: CallCredentials
    ) -> Any:
        """
        Find out who calls; on a public method what is wrong with a token does not matter.

        @return: The user, or something to wait for that gives it.
        """
        user = None
        # Where only the wire's own request is known, a provider may know where to look in it.
        if credentials is not ANONYMOUS:
            methods = bound.service.authentication.methods
            try:
                user = self._authenticator.authenticate(context, credentials, methods)
            except ServiceError as error:
                _checkForgiven(bound, error)
            if user is not None and hasattr(user, "__await__"):
                return self._identifyLater(bound, user)
        return _admitted(bound, user)

    async def _identifyLater(self, bound: MethodEntry, found: Awaitable[Any]) -> Any:
        user = None
        try:
            # Nobody is the user before the provider has said so.
            user = await found
        except ServiceError as error:
            _checkForgiven(bound, error)
        return _admitted(bound, user)

    async def _step(
        self, bound: MethodEntry, position: int, request: Any, context: RequestContext
    ) -> Any:
        """Go through the service's middleware from a position on, to the handler."""
        if position == len(bound.service.middleware):
            result = bound.handler(request, context)
        else:

            def next(request: Any = request, context: RequestContext = context) -> Awaitable[Any]:
                return self._step(bound, position + 1, request, context)

            result = bound.service.middleware[position](request, context, next)
        return await resolve(result)

    async def _measured(
        self, results: AsyncIterator[Any], context: RequestContext, began: float
    ) -> AsyncIterator[Any]:
        """Give the results of a stream, and take note of its end."""
        error: BaseException | None = None
        try:
            async for result in results:
                yield result
        except BaseException as raised:
            error = raised
            if isinstance(raised, GeneratorExit):
                raise
            raise self._failed(context, raised, began) from raised
        finally:
            # Closed here and now: what is left to the collector is closed at any time.
            await results.aclose()  # type: ignore[attr-defined]
            if error is None:
                self._ended(context, None, began)
            elif isinstance(error, GeneratorExit):
                self._failed(context, error, began)

    def _failed(self, context: RequestContext, error: BaseException, began: float) -> ServiceError:
        """Take note of a call's bad end; give its error as callers may see it."""
        if isinstance(error, CancelledError | GeneratorExit):
            known = codedError("CANCELLED", "The call was cancelled")
        else:
            if not isExpected(error):
                _log.failure(
                    "{service}.{method} failed",
                    service=context.service,
                    method=context.method,
                    protocol=context.protocol,
                    trace_id=context.tracing.traceId,
                )
            known = asServiceError(error)
        self._ended(context, known, began)
        return known

    def _ended(self, context: RequestContext, error: ServiceError | None, began: float) -> None:
        """Take note of a call's end."""
        seconds = self._seconds() - began
        for observer in self.observers:
            observer.callEnded(context, error, seconds)


def _checkForgiven(bound: MethodEntry, error: ServiceError) -> None:
    """Raise what is wrong with somebody's credentials, unless nobody has to be known."""
    if not bound.isPublic or error.code != "UNAUTHENTICATED":
        raise error


def _admitted(bound: MethodEntry, user: Any) -> Any:
    """Give the user, unless there is none and has to be one."""
    if user is None and not bound.isPublic:
        raise codedError("UNAUTHENTICATED", "Authentication is required")
    return user


def _checked(input: Schema, request: Any, streams: bool) -> Any:
    return checkedRequests(request, input.read) if streams else input.read(request)


def _checkAllowed(allowed: Any) -> None:
    if not allowed:
        raise codedError("PERMISSION_DENIED", "You may not call this method")


def _schema(schema: Mapping[str, Any] | None, name: str, isKnown: bool) -> Schema | None:
    return None if schema is None else Schema(schema, name, isKnown)


def _notFound(kind: str, name: str) -> ServiceError:
    unimplemented = GRPC_STATUSES["UNIMPLEMENTED"]
    return ServiceError("NOT_FOUND", f"Unknown {kind}: {name:.200}", 404, None, unimplemented)
