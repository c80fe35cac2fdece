"""
The client of a service that a class declares: calls take and return instances of its types.

The class is a C{Protocol} with the methods of the service, or the class that implements them::

    class Notes(Protocol):
        async def get(self, wanted: NoteId) -> Note: ...
        def list(self, query: Query) -> AsyncIterator[Note]: ...
        async def add(self, notes: AsyncIterable[Note]) -> Summary: ...

Type checkers see its signatures. At run time its annotations define the messages, as on the server.
"""

import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from inspect import Parameter, isfunction, signature
from types import MappingProxyType
from typing import Any, Generic, Literal, Self, TypeVar, get_args, get_origin

from attrs import field, frozen
from google.protobuf.message import Message
from msgspec.structs import replace
from twisted.internet.defer import Deferred

from storagegate.core.definitions import STREAMING, DefinitionError, ServiceDefinition, readService
from storagegate.core.errors import ServiceError
from storagegate.core.schemas import AnySchema, makeSchema
from storagegate.core.typeschemas import holdsModel, isModel
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.protolock import readLock
from storagegate.rpc.protos import RPCMethod, RPCService
from storagegate.rpc.schemaprotos import GeneratedMessages
from storagegate.rpc.typeforms import PLAIN, TypeCodec

T = TypeVar("T")

_STREAMS = (AsyncIterable, AsyncIterator, AsyncGenerator)


@frozen(eq=False)
class InstanceCodec(TypeCodec):
    """
    The codec of a message whose values are instances of a type.

    @ivar schema: Converts between instances and plain values; C{None} for plain values.
    @ivar isNothing: Whether every decoded value is C{None}.
    """

    schema: AnySchema | None = field(default=None, kw_only=True)
    isNothing: bool = field(default=False, kw_only=True)

    def decode(self, wire: bytes) -> Any:
        """
        Decode a message to an instance.

        @raise ConversionError: If it does not fit the type.
        """
        plain = super().decode(wire)
        if self.isNothing:
            return None
        if self.schema is None:
            return plain
        try:
            return self.schema.read(plain)
        except ServiceError as error:
            raise _asConversionError(error) from None

    def encode(self, value: Any) -> bytes:
        """
        Encode an instance.

        @raise ConversionError: If it does not fit the type.
        """
        if self.schema is None or isinstance(value, Message):
            return super().encode(value)
        try:
            plain = self.schema.check(value)
        except ServiceError as error:
            problem = _asConversionError(error)
        else:
            return super().encode(plain)
        # Raised outside the except block: the error's context would hold the value.
        raise problem


def _asConversionError(error: ServiceError) -> ConversionError:
    detail = error.details[0]
    return ConversionError(detail["path"], detail["message"])


def typedService(
    types: Any, service: RPCService | str | None = None, protoLock: str | None = None
) -> RPCService:
    """
    Make the service that a class declares.

    @param types: The class.
    @param service: Its full name, by default the name of the class; or a service of C{loadProto}
        with its messages.
    @param protoLock: The lock that numbers the fields of the messages, as on the server.
    @raise DefinitionError: If the class declares no service, or the service lacks its methods.
    """
    loaded = service if isinstance(service, RPCService) else None
    name = service if isinstance(service, str) else None
    definition, nothing = declaredService(types, name if loaded is None else loaded.name)
    made = GeneratedMessages(None if loaded else readLock(protoLock)).add(definition)
    methods: dict[str, RPCMethod] = {}
    for key, method in made.methods.items():
        target = method
        if loaded is not None:
            found = loaded.find(key)
            if found is None or found.streaming != method.streaming:
                raise DefinitionError(f"{loaded.name} has no {method.streaming} method {key}")
            target = found
        declared = definition.methods[key]
        where = f"{definition.name}.{key}"
        input = makeSchema(declared.input, declared.inputType, f"the input of {where}")
        output = makeSchema(declared.output, declared.outputType, f"the output of {where}")
        methods[key] = replace(
            target,
            name=key,
            request=InstanceCodec(
                target.request.messageClass, node=_nodeOf(method.request), schema=input
            ),
            response=InstanceCodec(
                target.response.messageClass,
                node=_nodeOf(method.response),
                schema=output,
                isNothing=key in nothing,
            ),
        )
    return RPCService(definition.name, MappingProxyType(methods), made.file)


def _nodeOf(codec: Any) -> Any:
    return codec.node if isinstance(codec, TypeCodec) else PLAIN


def declaredService(types: Any, name: str | None) -> tuple[ServiceDefinition, frozenset[str]]:
    """
    Read the methods that a class declares.

    @param name: The full name of the service; C{None} for the name of the class.
    @return: The definition, and the names of the methods that return C{None}.
    @raise DefinitionError: If the class declares no method, or a method has no type.
    """
    if not isinstance(types, type):
        raise DefinitionError(f"types is the class of a service, not {types!r:.80}")
    methods: dict[str, Any] = {}
    nothing = set()
    for key in dir(types):
        function = getattr(types, key, None)
        if key.startswith("_") or not isfunction(function):
            continue
        where = f"{types.__qualname__}.{key}"
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as error:
            raise DefinitionError(f"{where} has an annotation that is undefined: {error}") from None
        given = [*signature(function).parameters.values()][1:]
        needed = [each for each in given if each.default is Parameter.empty]
        if len(needed) > 1:
            raise DefinitionError(f"{where} takes one request, not {len(needed)}")
        request = hints.get(given[0].name) if given else None
        response = hints.get("return")
        if response is type(None):
            nothing.add(key)
        streams = [get_origin(each) in _STREAMS for each in (request, response)]
        input, output = (
            get_args(each)[0] if isStream else each
            for each, isStream in zip((request, response), streams, strict=True)
        )
        methods[key] = {
            "handler": function,
            "streaming": STREAMING[streams[0] + 2 * streams[1]],
            "input": input if isModel(input) else None,
            "output": output if holdsModel(output) else None,
        }
    if not methods:
        raise DefinitionError(f"{types.__qualname__} declares no methods")
    return readService({"methods": methods}, name or types.__name__), frozenset(nothing)


class TypedGrpcClient(Generic[T]):
    """
    A client whose calls have the signatures of a class.

    @ivar calls: The methods of the service: a coroutine for a single response, an asynchronous
        iterator for a stream. A call fails with C{GrpcError}.
    """

    calls: T

    def __init__(self, client: Any, service: RPCService) -> None:
        """
        @param client: A L{GrpcClient<storagegate.rpc.client.GrpcClient>}.
        @param service: The result of L{typedService}.
        """
        self._client = client
        self._service = client.service(service)
        self.calls = self.callsWith()

    def callsWith(
        self,
        *,
        metadata: Any = None,
        deadlineMs: float | None = None,
        waitForReady: bool = False,
        compression: Literal["gzip", "deflate", "identity"] | None = None,
    ) -> T:
        """
        Return the methods with options for each of their calls, see
        L{MethodCaller.__call__<storagegate.rpc.client.MethodCaller.__call__>}.
        """
        options = {
            "metadata": metadata,
            "deadlineMs": deadlineMs,
            "waitForReady": waitForReady,
            "compression": compression,
        }
        found: Any = _TypedCalls(self._service, options)
        return found  # type: ignore[no-any-return]

    def close(self) -> Deferred[None]:
        """Close the connection; calls in flight end with C{CANCELLED}."""
        closed: Deferred[None] = self._client.close()
        return closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class _TypedCalls:
    """The methods of a service, with the options of their calls."""

    def __init__(self, service: Any, options: dict[str, Any]) -> None:
        self._service = service
        self._options = options

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        method = self._service.findMethod(name)
        caller, options = self._service[name], self._options

        async def once(request: Any = None) -> Any:
            return await caller(request, **options)

        def each(request: Any = None) -> AsyncIterator[Any]:
            return aiter(caller(request, **options))

        found = each if method.streaming in ("server", "bidirectional") else once
        self.__dict__[name] = found
        return found
