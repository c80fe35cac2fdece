"""The commands C{proto} and C{client}, which print files that are generated from services."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from storagegate.cli.invocation import FAILED, MISUSED, CommandError, Invocation
from storagegate.cli.targets import importModule, importTarget
from storagegate.core.definitions import DefinitionError, ServiceDefinition, readService
from storagegate.daemon.gatewayservice import importingServices
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.transports.registry import GRPC
from storagegate.rpc.application import GRPCServer


def proto(invocation: Invocation) -> int:
    """
    Print the C{.proto} file of services, and update the lock of its numbers.

    @raise CommandError: The services cannot be loaded, or have no such file.
    """
    from storagegate.rpc.protolock import LockError, ProtoLock, updatingLocks
    from storagegate.rpc.prototext import protoText
    from storagegate.rpc.schemaprotos import GeneratedMessages

    options, output = invocation.options, invocation.output
    with updatingLocks():
        target = loadTarget(options.target)
        generated = GeneratedMessages()
        try:
            for definition in _generatedServices(target):
                generated.add(definition)
        except DefinitionError as error:
            raise CommandError(str(error)) from error
    package = _packageOf([*generated.packages], options.package)
    configured = _configuredLock(target)
    path = options.lock or configured or f"{_moduleOf(options.target)}.proto.lock"
    files = {name: generated.files(name) for name in generated.packages}
    fixed = {name for each in generated.packages.values() for name in each.fixed}
    try:
        lock = ProtoLock.read(path) if Path(path).exists() else ProtoLock(path)
        before = lock.text
        renames = dict(map(_readRename, options.rename or ()))
        lock.update(
            [file for each in files.values() for file in each],
            fixed,
            renames,
            frozenset(options.remove or ()),
        )
    except LockError as error:
        for problem in error.problems:
            output.note(f"storagegate: {problem}")
        output.result({"problems": [*error.problems]})
        return FAILED
    text = protoText(files[package], generated.documents(package))
    if options.check:
        problems = []
        if not Path(path).exists() or lock.text != before:
            problems.append(f"{path} is out of date: run storagegate proto {options.target}")
        if options.out and not _isSame(options.out, text):
            problems.append(f"{options.out} is out of date: run storagegate proto with --out")
        for problem in problems:
            output.note(f"storagegate: {problem}")
        output.result({"problems": problems})
        return FAILED if problems else 0
    lock.write()
    if configured is None and not isinstance(target, ServiceDefinition):
        output.note(f"set grpc.protoLock to {path!r}: the server then uses these numbers")
    _print(invocation, text)
    return 0


def client(invocation: Invocation) -> int:
    """
    Print a client in TypeScript.

    @raise CommandError: There is no service and no route to call.
    """
    from storagegate.cli.typescript.routes import routesClient
    from storagegate.cli.typescript.services import servicesClient
    from storagegate.http.application import Application
    from storagegate.rpc.protolock import updatingLocks

    options = invocation.options
    with updatingLocks():
        target = loadTarget(options.target)
    if isinstance(target, Application):
        text = routesClient(target.openapi())
    elif isinstance(target, GRPCServer):
        raise CommandError(f"{options.target} serves only gRPC: see storagegate proto", MISUSED)
    else:
        services = [target] if isinstance(target, ServiceDefinition) else target.services.values()
        text = servicesClient(services)
    if options.check:
        if options.out and _isSame(options.out, text):
            return 0
        invocation.output.note(f"storagegate: {options.out or '--out'} is out of date")
        return FAILED
    _print(invocation, text)
    return 0


def _print(invocation: Invocation, text: str) -> None:
    """Write a generated file to C{--out}, or print it."""
    if invocation.options.out:
        Path(invocation.options.out).write_text(text, encoding="utf-8")
        invocation.output.result({"file": invocation.options.out})
    else:
        invocation.output.result({"text": text}, [text.removesuffix("\n")])


def _isSame(path: str, text: str) -> bool:
    try:
        return Path(path).read_text(encoding="utf-8") == text
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _readRename(text: str) -> tuple[str, str]:
    old, sign, new = text.partition("=")
    if not (old and sign and new):
        raise CommandError(f"--rename is OLD=NEW, not {text}", MISUSED)
    return old, new


def _packageOf(packages: list[str], wanted: str | None) -> str:
    """
    Return the package to print.

    @raise CommandError: There are several, and the flag names none of them.
    """
    if wanted is None and len(packages) == 1:
        return packages[0]
    if wanted not in packages:
        known = ", ".join(each or '""' for each in packages)
        raise CommandError(f"--package is one of {known}: each has a file of its own", MISUSED)
    assert wanted is not None
    return wanted


def _moduleOf(target: str) -> str:
    return target.partition(":")[0].rpartition(".")[2]


def loadTarget(name: str) -> Any:
    """
    Load a gateway, a gRPC application, an HTTP application or a service.

    @param name: C{MODULE:OBJECT}, C{MODULE:FUNCTION()}, or a module with one such object.
    @return: The object; a service as a L{ServiceDefinition}.
    @raise CommandError: There is none, or a module has several.
    """
    module, _, path = name.partition(":")
    with importingServices():
        try:
            found = importTarget(name) if path else vars(importModule(module))
        except CommandError:
            raise
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            raise CommandError(f"cannot import {module}: {reason}", MISUSED) from error
    try:
        candidates = {path: found} if path else found
        targets = dict(_targets(candidates))
        if not path and len(targets) > 1:
            # A gateway has the services of its module.
            servers = {
                key: each
                for key, each in targets.items()
                if not isinstance(each, ServiceDefinition)
            }
            targets = servers or targets
    except DefinitionError as error:
        raise CommandError(str(error), MISUSED) from error
    if len(targets) != 1:
        known = ", ".join(f"{module}:{key}" for key in targets)
        reason = (
            f"has several: {known}" if known else "is not a gateway, an application or a service"
        )
        raise CommandError(f"{name} {reason}", MISUSED)
    return next(iter(targets.values()))


def _targets(found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the objects from which files can be generated, each under its first name."""
    # Imported late: the HTTP framework is not part of a daemon without it.
    from storagegate.http.application import Application

    known: list[Any] = []
    for key, value in found.items():
        if key.startswith("__") or any(value is each for each in known):
            continue
        if isinstance(value, ProtocolGateway | GRPCServer | Application | ServiceDefinition):
            known.append(value)
            yield key, value
        elif isinstance(value, dict) and isinstance(value.get("methods"), Mapping):
            name = value.get("name", key)
            known.append(value)
            yield key, readService({**value, "name": name})


def _generatedServices(target: Any) -> Iterable[ServiceDefinition]:
    """
    Return the services whose messages are generated.

    @raise CommandError: The object has none.
    """
    found: list[ServiceDefinition] = []
    if isinstance(target, ServiceDefinition):
        found = [target]
    elif isinstance(target, GRPCServer):
        found = [*target.messages.definitions.values()]
    elif isinstance(target, ProtocolGateway):
        from storagegate.gateway.transports.grpc.protos import MappedProtos

        mapped = MappedProtos(target.settings.of(GRPC.name), target.protos)
        found = [each for each in target.services.values() if not mapped.of(each)]
    if not found:
        raise CommandError("there is no service without a .proto file of its own", MISUSED)
    return found


def _configuredLock(target: Any) -> str | None:
    """Return the lock that a server reads."""
    if isinstance(target, GRPCServer):
        return target.settings.grpc.protoLock
    if isinstance(target, ProtocolGateway):
        path: str | None = target.settings.of(GRPC.name).protoLock
        return path
    return None
