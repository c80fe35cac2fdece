"""All mistakes of a configuration, for C{config check}, the doctor and a failed start."""

from collections.abc import Mapping

from storagegate.daemon.config import overriddenErrors, readAll
from storagegate.daemon.gatewayservice import gatewayErrors, importingServices


def everyError(flags: Mapping[str, object], environment: Mapping[str, str]) -> list[str]:
    """
    Return all mistakes, one line each: of the keys, also of values that another source overrides,
    of the services, which are imported, and of the tables of the gateway.

    @param flags: The given flags, by key; C{config} is the path of the file.
    @param environment: The environment variables of the process.
    """
    reading = readAll(flags, environment)
    found = [*reading.errors, *overriddenErrors(flags, environment)]
    with importingServices():
        found += gatewayErrors(
            reading.values.get("service", ()),
            reading.gateway,
            reading.values.get("gatewayOnS3", False),
        )
    return list(dict.fromkeys(found))
