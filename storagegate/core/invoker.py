"""
The path of every call, over any transport.

Look-up, rate limit, authentication, validation of the request, authorisation, middleware, handler,
validation of the response, metrics: in this order, and only here. A transport creates the context
of a call, passes it to an L{Invoker}, and encodes the result.
"""

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from math import ceil
from typing import Any, Protocol

from attrs import Factory, evolve, field, frozen
from msgspec import Struct
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
from storagegate.core.dependencyowner import DependencyOwner
from storagegate.core.errors import (
    GRPC_STATUSES,
    ServiceError,
    asServiceError,
    causedBy,
    codedError,
    isExpected,
)
from storagegate.core.injection import injectedHandler
from storagegate.core.jsonforms import jsonForm
from storagegate.core.ratelimit import Count, IRateLimitStore, RateStoreMaker, makeRateStore
from storagegate.core.schemas import AnySchema, Fits, checkedResults, checkResult, makeSchema
from storagegate.core.streams import GuardedRequests
from storagegate.core.task import nameRemedy, resolve


def _derived(compute: Callable[[Any], Any]) -> Any:
    return field(init=False, default=Factory(compute, takes_self=True))


@frozen(eq=False)
class MethodEntry:
    """
    A method that can be called.

    @ivar name: Its name, without the service's name.
    @ivar method: Its definition.
    @ivar input: Validates a request; C{None} for any.
    @ivar output: Validates a response.
    @ivar isPublic: Whether anonymous calls are allowed.
    @ivar rates: Counts its calls; C{None} without a limit.
    @ivar inputFits: Recognises most valid requests, see L{Schema<storagegate.core.schemas.Schema>};
        or C{None}.
    @ivar outputFits: The same for responses.
    @ivar streamsRequests: Whether a call has a stream of requests.
    @ivar streamsResponses: Whether it has a stream of responses.
    @ivar isOther: Whether it stands for all undefined methods of its service.
    @ivar authorize: Decides about a user's call; C{None} if every user may call it.
    @ivar typed: The method for transports whose messages carry the handler's values themselves, if
        their JSON form differs.
    """

    service: ServiceDefinition
    name: str
    method: ServiceMethod
    input: AnySchema | None
    output: AnySchema | None
    isPublic: bool
    limit: RateLimit | None
    rates: IRateLimitStore | None
    handler: Callable[[Any, RequestContext], Any] = field(repr=False)
    # Computed once a method instead of once a call.
    inputFits: Fits | None = field(
        init=False, default=Factory(lambda self: getattr(self.input, "fits", None), takes_self=True)
    )
    outputFits: Fits | None = field(
        init=False,
        default=Factory(lambda self: getattr(self.output, "resultFits", None), takes_self=True),
    )
    streamsRequests: bool = _derived(lambda self: self.method.streamsRequests)
    streamsResponses: bool = _derived(lambda self: self.method.streamsResponses)
    isOther: bool = _derived(lambda self: self.method is self.service.others)
    authorize: Callable[..., Any] | None = field(
        init=False,
        default=Factory(lambda self: self.service.authentication.authorize, takes_self=True),
    )
    whole: str = _derived(lambda self: f"{self.service.name}.{self.name}")
    typed: "MethodEntry | None" = None

    @property
    def streaming(self) -> str:
        """Return its kind of streaming."""
        return self.method.streaming


Hook = Callable[[Any, Any], Any]


def adaptHandler(
    function: Callable[..., Any], name: str, first: str = "req", second: str = "res"
) -> Hook:
    """
    Adapt a function of one or two arguments to two arguments.

    @param function: The function. Its second parameter is not passed if it has a default and
        another name, such as C{default} of C{dict.get}.
    @param name: The name of its option, for the error.
    @param first: The name of the first argument; C{second} is the name of the second.
    @raise TypeError: If it is not a function of one or two arguments.
    """
    if not callable(function):
        raise TypeError(f"{name} is a function of ({first}, {second}), not {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some built-in functions have no signature.
        return function
    takesOne = _takes(signature, 1)
    parameters = list(signature.parameters.values())[1:2]
    isOwn = any(each.kind is not each.VAR_POSITIONAL and each.name != second for each in parameters)
    if _takes(signature, 2) and not (takesOne and isOwn):
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


_log = Logger()

OTHERS = "*"
"""The name under which the calls of undefined methods of a service are counted."""


class CallCredentials(Struct):
    """
    The credentials of a client. Treated as immutable.

    @ivar token: The token; or C{None}.
    @ivar apiKey: The API key, if the transport has a field for it.
    @ivar native: The request, message or call, for hooks of the transport.
    @ivar hasFields: Whether tokens and keys have a header field each; otherwise one field of the
        message holds either.
    """

    token: str | None = None
    apiKey: str | None = None
    native: Any = None
    hasFields: bool = False


ANONYMOUS = CallCredentials()


class IAuthenticator(Protocol):
    """Authenticates calls."""

    def authenticate(
        self, context: RequestContext, credentials: CallCredentials, methods: tuple[str, ...]
    ) -> Any:
        """
        Authenticate a call.

        @param methods: The providers that the service allows; empty for the providers of the
            transport.
        @return: The user, or an awaitable of it; C{None} if no provider recognised the credentials,
            or there are none.
        @raise ServiceError: C{UNAUTHENTICATED} if they are invalid.
        """


class InvocationObserver(Protocol):
    """Observes calls."""

    def callStarted(self, context: RequestContext) -> None:
        """Record the start of a call whose method was found."""

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """Record the end of a call; C{error} is C{None} if it succeeded."""


class Invoker(DependencyOwner):
    """
    Calls the methods of services.

    @ivar services: The services by name.
    @ivar authenticator: Verifies the credentials of calls.
    @ivar observers: The observers of calls.
    @ivar rateLimit: The limit of methods without their own.
    @ivar onUnknown: Called with the transport of a call to an unknown method, which observers do
        not see.
    @ivar isServing: Returns whether a listener is open.
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
        @param now: Returns seconds since 1970.
        @param seconds: Returns seconds of a monotonic clock.
        @param rateStore: Makes the store of a rate limit from the method's name and the window;
            C{None} is L{makeRateStore}.
        """
        self.services: dict[str, ServiceDefinition] = {}
        self.authenticator = authenticator
        self.observers = list(observers)
        self.onUnknown: Callable[[str], None] | None = None
        self.rateLimit = rateLimit
        self.now = now
        self._makeRates = rateStore or (
            lambda name, windowMs: makeRateStore(name, windowMs, now=now)
        )
        self._seconds = seconds
        self._methods: dict[str, dict[str, MethodEntry]] = {}
        # The methods for undefined names, by service.
        self._others: dict[str, MethodEntry] = {}
        self.isServing: Callable[[], bool] = lambda: False

    def _hasOpenPorts(self) -> bool:
        """Return whether a listener is open."""
        return self.isServing()

    @property
    def hasDependencies(self) -> bool:
        """Return whether there are any dependencies yet."""
        return self._dependencies is not None

    def add(self, service: ServiceDefinition, isKnown: bool = False) -> None:
        """
        Add a service.

        @param service: The service; its methods can be called at once.
        @param isKnown: Whether its schemas are known to be valid, and so compiled at the first
            call.
        @raise DefinitionError: If its name is taken, or a schema is invalid.
        """
        if service.name in self.services:
            raise DefinitionError(f"the service {service.name} already exists")
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
        Add a service, replacing any service of the same name.

        @raise DefinitionError: If a schema is invalid.
        """
        self.services.pop(service.name, None)
        self.add(service, isKnown)

    def _bind(
        self, service: ServiceDefinition, name: str, method: ServiceMethod, isKnown: bool
    ) -> MethodEntry:
        whole = f"{service.name}.{name}"
        limit = method.rateLimit or service.rateLimit or self.rateLimit
        handler = injectedHandler(
            method.handler, whole, lambda: self.dependencies, 2, method.streamsResponses
        )
        if handler is not None:
            # Before the start, which gives them the clock.
            self.dependencies  # noqa: B018
        typed = MethodEntry(
            service,
            name,
            method,
            makeSchema(method.input, method.inputType, f"the input of {whole}", isKnown),
            makeSchema(method.output, method.outputType, f"the output of {whole}", isKnown),
            service.isAnonymous(method),
            limit,
            None if limit is None else self._makeRates(whole, limit.window),
            handler or adaptHandler(method.handler, whole, "request", "context"),
        )
        return _forJSON(typed, jsonForm(typed.input), jsonForm(typed.output))

    def mapMessages(
        self, service: str, method: str, input: AnySchema | None, output: AnySchema | None
    ) -> None:
        """
        Declare the JSON form of a method's messages, which a proto defines.

        @param method: A method of the service. Where it has a schema, the schema decides.
        @param input: The form of requests; C{None} for any value.
        @param output: The form of responses.
        """
        entry = self._methods[service][method]
        typed = entry.typed or entry
        self._methods[service][method] = _forJSON(
            typed,
            input if typed.input is None else entry.input,
            output if typed.output is None else entry.output,
        )

    def limitAll(self, limit: RateLimit | None) -> None:
        """Set the limit of methods without their own; all methods get new stores."""
        self.rateLimit = limit
        services, self.services = list(self.services.values()), {}
        for service in services:
            self.add(service)

    def find(self, service: str, method: str, protocol: str | None = None) -> MethodEntry:
        """
        Look up a method.

        @param method: Its bare name, from the client.
        @param protocol: The transport of the call; C{None} without a call.
        @raise ServiceError: C{NOT_FOUND} if it does not exist.
        """
        methods = self._methods.get(service)
        found = None if methods is None else methods.get(method)
        if found is not None:
            return found
        if service in self._others and isMethodName(method):
            # The entry is not kept and shares one count, so invented names take no memory.
            return evolve(self._others[service], name=method)
        if protocol is not None and self.onUnknown is not None:
            self.onUnknown(protocol)
        if methods is None:
            raise _notFound("service", service)
        raise _notFound("method", f"{service}.{method}")

    def findTyped(self, service: str, method: str, protocol: str) -> MethodEntry:
        """
        Look up a method for a transport whose messages carry the handler's values, not JSON.

        @param method: See L{find} for all parameters.
        @raise ServiceError: C{NOT_FOUND} if it does not exist.
        """
        found = self.find(service, method, protocol)
        return found.typed or found

    async def call(
        self,
        context: RequestContext,
        request: Any,
        credentials: CallCredentials = ANONYMOUS,
        bound: MethodEntry | None = None,
        receive: Callable[[], Any] | None = None,
    ) -> Any:
        """
        Call a method.

        All steps run in this coroutine, which awaits a result only if it is awaitable: one
        coroutine a step would take 5 % more time.

        @param context: The context, with C{service} and C{method}; C{authentication} is set here.
        @param request: The request, or an asynchronous iterable of streamed ones.
        @param credentials: The credentials; invalid ones are ignored if the method is public.
        @param bound: The method, if it was already looked up for this call; with C{None}, the
            request and the result have their JSON form.
        @param receive: Returns the request, or an awaitable of it, instead of C{request}. Called
            after authentication: a client without valid credentials is refused before its request
            is read.
        @return: The result, or an asynchronous iterator of results, to be exhausted or closed.
        @raise ServiceError: If the call fails; unexpected exceptions are logged here.
        """
        if bound is None:
            bound = self.find(context.service, context.method, context.protocol)
        context.credentials = credentials
        if bound.isOther:
            context.metadata["route"] = OTHERS
        began = self._seconds()
        # The streams that the handler has returned to middleware, which may drop them.
        opened: list[Any] = []
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
            if receive is not None:
                request = receive()
                if hasattr(request, "__await__"):
                    request = await request
            stream = None
            if bound.streamsRequests:
                check = None if bound.input is None else bound.input.read
                request = stream = GuardedRequests(request, check)
            elif bound.input is not None and not (bound.inputFits and bound.inputFits(request)):
                request = bound.input.read(request)
            if bound.authorize is not None:
                shown = None if bound.streamsRequests else request
                allowed = bound.authorize(user, bound.name, shown)
                if not (await allowed if hasattr(allowed, "__await__") else allowed):
                    raise codedError("PERMISSION_DENIED", "You may not call this method")
            if bound.service.middleware:
                result = self._step(bound, 0, request, context, opened)
            else:
                result = bound.handler(request, context)
            if hasattr(result, "__await__"):
                result = await (result if stream is None else stream.guard(result))
            if bound.output is None or bound.streamsResponses:
                pass
            elif not (bound.outputFits and bound.outputFits(result)):
                result = checkResult(bound.output, bound.whole, result)
        except BaseException as error:
            await _closeAll(opened)
            raise causedBy(self._failed(context, error, began), error)  # noqa: B904
        if bound.streamsResponses:
            results = checkedResults(bound.output, bound.whole, result)
            if stream is not None:
                results = stream.guardResults(results)
            return self._measured(results, context, began, opened)
        seconds = self._seconds() - began
        for observer in self.observers:
            observer.callEnded(context, None, seconds)
        return result

    def _checkRate(self, bound: MethodEntry, count: Count) -> None:
        """Refuse a call that exceeds the limit for its method and its client's address."""
        hits, end = count
        if bound.limit is not None and hits > bound.limit.requests:
            retryAfterMs = max(1, ceil((end - self.now()) * 1000))
            raise codedError("RATE_LIMITED", "Too many calls", {"retryAfterMs": retryAfterMs})

    def _identify(
        self, bound: MethodEntry, context: RequestContext, credentials: CallCredentials
    ) -> Any:
        """
        Authenticate a call; a public method ignores invalid credentials.

        @return: The user, or an awaitable of it.
        """
        user = None
        # Try credentials that only have a native request, too: a provider may extract a token.
        if credentials is not ANONYMOUS:
            methods = bound.service.authentication.methods
            try:
                user = self.authenticator.authenticate(context, credentials, methods)
            except ServiceError as error:
                _checkForgiven(bound, error)
            if user is not None and hasattr(user, "__await__"):
                return _identifyLater(bound, user)
        return user if user is not None or bound.isPublic else _admitted(bound, user)

    async def _step(
        self,
        bound: MethodEntry,
        position: int,
        request: Any,
        context: RequestContext,
        opened: list[Any],
    ) -> Any:
        """
        Call the middleware of the service from a position on, then the handler.

        @param opened: Receives the stream that the handler returns.
        """
        if position == len(bound.service.middleware):
            result = await resolve(bound.handler(request, context))
            if bound.streamsResponses:
                opened.append(result)
            return result

        def next(request: Any = request, context: RequestContext = context) -> Awaitable[Any]:
            return self._step(bound, position + 1, request, context, opened)

        return await resolve(bound.service.middleware[position](request, context, next))

    async def _measured(
        self,
        results: AsyncIterator[Any],
        context: RequestContext,
        began: float,
        opened: Sequence[Any],
    ) -> AsyncIterator[Any]:
        """
        Yield the results of a stream, and record its end.

        @param opened: The streams to close with it.
        """
        error: BaseException | None = None
        try:
            async for result in results:
                yield result
        except BaseException as raised:
            error = raised
            if isinstance(raised, GeneratorExit):
                raise
            raise causedBy(self._failed(context, raised, began), raised)  # noqa: B904
        finally:
            # Close it here; the garbage collector would do so at an arbitrary time.
            await results.aclose()  # type: ignore[attr-defined]
            await _closeAll(opened)
            if error is None:
                self._ended(context, None, began)
            elif isinstance(error, GeneratorExit):
                self._failed(context, error, began)
            # Its traceback holds this frame.
            del error

    def _failed(self, context: RequestContext, error: BaseException, began: float) -> ServiceError:
        """Record the failure of a call; return its error for callers."""
        if isinstance(error, CancelledError | GeneratorExit):
            known = codedError("CANCELLED", "The call was cancelled")
        else:
            if not isExpected(error):
                nameRemedy(error)
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
        """Notify the observers of the end of a call."""
        seconds = self._seconds() - began
        for observer in self.observers:
            observer.callEnded(context, error, seconds)


async def _closeAll(streams: Sequence[Any]) -> None:
    """Close the streams of a handler, as far as they are not closed."""
    for stream in streams:
        close = getattr(stream, "aclose", None)
        if close is not None:
            try:
                await close()
            except Exception:
                # The end of the call must still be recorded.
                _log.failure("a stream could not be closed")


def _forJSON(typed: MethodEntry, input: AnySchema | None, output: AnySchema | None) -> MethodEntry:
    """Return the entry of a method for JSON, with its own schemas if they differ."""
    if input is typed.input and output is typed.output:
        return typed
    return evolve(typed, input=input, output=output, typed=typed)


async def _identifyLater(bound: MethodEntry, found: Awaitable[Any]) -> Any:
    user = None
    try:
        user = await found
    except ServiceError as error:
        _checkForgiven(bound, error)
    return _admitted(bound, user)


def _checkForgiven(bound: MethodEntry, error: ServiceError) -> None:
    """Raise the error of invalid credentials, unless anonymous calls are allowed."""
    if not bound.isPublic or error.code != "UNAUTHENTICATED":
        raise error


def _admitted(bound: MethodEntry, user: Any) -> Any:
    """Return the user; refuse an anonymous call of a method that is not public."""
    if user is None and not bound.isPublic:
        raise codedError("UNAUTHENTICATED", "Authentication is required")
    return user


def _notFound(kind: str, name: str) -> ServiceError:
    unimplemented = GRPC_STATUSES["UNIMPLEMENTED"]
    return ServiceError("NOT_FOUND", f"Unknown {kind}: {name:.200}", 404, None, unimplemented)
