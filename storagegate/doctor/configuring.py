"""The configuration: every line that a start would refuse, and not the first one only."""

from collections.abc import Iterator, Mapping

from storagegate.config import Configuration, ConfigurationError, everyError, load
from storagegate.doctor.findings import Check, Finding

_check = Check("configuration")


def read(
    flags: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[Configuration | None, list[Finding]]:
    """Read it as the daemon would; without it there is L{None}, and the reasons."""
    try:
        configuration = load(flags, environment)
    except ConfigurationError:
        return None, [_check.problem(line) for line in everyError(flags, environment)]
    origin = f"of {flags['config']}" if flags.get("config") else "without a file"
    return configuration, [_check.ok(f"every key is right, {origin}")]


def checkGateway(configuration: Configuration) -> Iterator[Finding]:
    """Import the services and give each table of the gateway to one, as the daemon would."""
    from storagegate.core.definitions import DefinitionError
    from storagegate.gateway.gateway import ProtocolGateway
    from storagegate.gatewayconfig import configureGateway
    from storagegate.naming import NamingError, findNamed

    services = Check("services")
    gateway = ProtocolGateway()
    for name in configuration.services:
        try:
            gateway.addService(findNamed(name))
        except (NamingError, DefinitionError) as error:
            yield services.problem(f"{name}: {error}")
        else:
            yield services.ok(f"{name} is one")
    for name, table in configuration.gateway.items():
        try:
            configureGateway(ProtocolGateway(), {name: table})
        except ConfigurationError as error:
            yield _check.problem(str(error))
        else:
            yield _check.ok(f"gateway.{name} is right")
