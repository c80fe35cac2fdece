"""What a service of gRPC is: its methods, each with its path and the messages of both ways."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import field, frozen
from google.protobuf.descriptor import (
    Descriptor,
    FileDescriptor,
    MethodDescriptor,
    ServiceDescriptor,
)
from google.protobuf.message_factory import GetMessageClass

from storagegate.core.definitions import STREAMING
from storagegate.rpc.conversion import MessageCodec, codecOf

# Capitals at a name's beginning: all of HTTP in HTTPGet and in HTTP, G in GetUser.
_LEADING = re.compile(r"\A(?:[A-Z]+(?![a-z])|[A-Z])")
_UNDERSCORES = re.compile(r"_+(.?)")


@frozen
class RPCMethod:
    """
    One method.

    @ivar name: Its bare name, as the definition has it.
    @ivar path: Its name on the wire, C{/package.Service/Method}.
    @ivar streaming: One of L{STREAMING}.
    @ivar request: Converts what a client sends.
    @ivar response: Converts what a server sends.
    """

    name: str
    path: str
    streaming: str
    request: MessageCodec
    response: MessageCodec

    @property
    def camelName(self) -> str:
        """Give the name under which a client offers it: C{getUser} for C{GetUser}."""
        return camelCase(self.name)


@frozen(eq=False)
class RPCService:
    """
    A service.

    @ivar name: Its full name, such as C{user.UserService}.
    @ivar methods: Its methods by their bare names, in the order of the definition.
    @ivar file: The file that defines it, for reflection.
    """

    name: str
    methods: Mapping[str, RPCMethod]
    file: FileDescriptor
    _byCamelName: Mapping[str, RPCMethod] = field(init=False, repr=False)

    @_byCamelName.default
    def _indexed(self) -> Mapping[str, RPCMethod]:
        found: dict[str, list[RPCMethod]] = {}
        for method in self.methods.values():
            found.setdefault(method.camelName, []).append(method)
        return {name: methods[0] for name, methods in found.items() if len(methods) == 1}

    def find(self, name: str) -> RPCMethod | None:
        """
        Find a method by its own name or by the camelCase of it.

        @return: C{None} if there is none, or if several have that camelCase.
        """
        return self.methods.get(name) or self._byCamelName.get(name)


def serviceOf(descriptor: ServiceDescriptor) -> RPCService:
    """Make a service of its descriptor; the message classes come from the descriptor's pool."""
    methods = {each.name: _methodOf(descriptor.full_name, each) for each in descriptor.methods}
    return RPCService(descriptor.full_name, MappingProxyType(methods), descriptor.file)


def camelCase(name: str) -> str:
    """
    Give a method's name as clients write it.

    C{GetUser} is C{getUser}, C{get_user} is too, and C{HTTPGet} is C{httpGet}.
    """
    joined = _UNDERSCORES.sub(lambda found: found[1].upper(), name)
    return _LEADING.sub(lambda found: found[0].lower(), joined) or name


def _methodOf(service: str, descriptor: MethodDescriptor) -> RPCMethod:
    kind = STREAMING[descriptor.client_streaming + 2 * descriptor.server_streaming]
    return RPCMethod(
        descriptor.name,
        f"/{service}/{descriptor.name}",
        kind,
        _codec(descriptor.input_type),
        _codec(descriptor.output_type),
    )


def _codec(descriptor: Descriptor) -> MessageCodec:
    # To mypy, the stubs' messages have no hash, and so their classes have none either.
    messageClass: Any = GetMessageClass(descriptor)
    return codecOf(messageClass)
