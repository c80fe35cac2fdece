"""The services of protos that the options of gRPC map to services of the gateway."""

from collections.abc import Collection, Mapping

from storagegate.core.definitions import DefinitionError, ServiceDefinition
from storagegate.core.invoker import Invoker
from storagegate.gateway.transports.grpc import GRPCOptions
from storagegate.rpc.jsonmapping import JSONMapping
from storagegate.rpc.protos import RPCMethod, RPCService, loadProto


class MappedProtos:
    """The services of the loaded protos, and the gateway's services that answer them."""

    def __init__(self, options: GRPCOptions, loaded: Mapping[str, RPCService]) -> None:
        """
        @param options: The files, and the names of the gateway's services by the protos' names.
        @param loaded: Further services, by full name.
        @raise ProtoError: If a file cannot be loaded.
        @raise DefinitionError: If the options name an unknown service.
        """
        self._options = options
        found = dict(loaded)
        self._files = {
            path: loadProto(path, keepUnknown=options.keepUnknown, naive=options.naive).services
            for path in options.protoFiles
        }
        # A service of a file answers under its full name, unless the options name another.
        self._named: dict[str, str] = {}
        for services in self._files.values():
            found.update(services)
            self._named.update((name, name) for name in services)
        self._named.update(options.services)
        for name in options.services:
            if name not in found:
                known = ", ".join(sorted(found)) or "none"
                raise DefinitionError(f"no proto has the service {name}; known services: {known}")
        self._found = found

    def of(self, service: ServiceDefinition) -> list[RPCService]:
        """Return the services of protos that a service of the gateway answers."""
        named = self._named.items()
        return [self._found[proto] for proto, name in named if name == service.name]

    def checkUse(self, names: Collection[str]) -> None:
        """
        Check that the gateway answers what the options name, so that no messages are ignored.

        A file may have further services, unless the gateway has a service of the same name without
        the package.

        @param names: The names of the gateway's services.
        @raise DefinitionError: If the gateway has no service of a mapped name, or answers no
            service of a file.
        """
        known = ", ".join(sorted(names)) or "none"
        for proto, name in self._options.services.items():
            if name not in names:
                raise DefinitionError(
                    f"grpc.services maps {proto} to {name}, but the gateway has no service {name};"
                    f" its services: {known}"
                )
        taken = {name for name in self._named.values() if name in names}
        for path, services in self._files.items():
            unanswered = [proto for proto in services if self._named[proto] not in names]
            meant = [
                proto
                for proto in unanswered
                if (name := proto.rpartition(".")[2]) in names and name not in taken
            ]
            if meant or (services and len(unanswered) == len(services)):
                proto = (meant or unanswered)[0]
                raise DefinitionError(
                    f"no service of the gateway answers {proto} of {path}: name the gateway's"
                    f' service {proto}, or write grpc.services = {{"{proto}": "NAME"}} with the'
                    f" NAME of one of the gateway's services: {known}"
                )

    def methodOf(self, service: ServiceDefinition, rpc: RPCMethod) -> str | None:
        """Return the name of the method that answers an RPC; C{None} if there is none."""
        mapped = self._options.methodMapping.get(rpc.name)
        names = (mapped, rpc.name, rpc.camelName)
        return next((each for each in names if each in service.methods), None)

    def mapJSON(self, service: ServiceDefinition, invoker: Invoker) -> None:
        """
        Give the messages of a service's protos their form on transports with JSON.

        @param service: A service of the invoker. Of several RPCs of one method, the first decides.
        """
        options = self._options
        mapped: set[str] = set()
        for definition in self.of(service):
            for rpc in definition.methods.values():
                name = self.methodOf(service, rpc)
                if name is None or name in mapped:
                    continue
                mapped.add(name)
                # With a hook, the values of handlers are not the values of the messages.
                input = None if options.transformRequest else JSONMapping(rpc.request)
                output = None if options.transformResponse else JSONMapping(rpc.response)
                invoker.mapMessages(service.name, name, input, output)
