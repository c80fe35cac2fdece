"""The configuration: each key with its value and its origin, and the reload."""

from typing import Any

import msgspec
from msgspec import Struct

from storagegate.console.call import ConsoleCall
from storagegate.core.errors import ServiceError


class OptionView(Struct, kw_only=True):
    """
    A key of the configuration, or an option of one of its tables.

    @ivar value: C{***} if it is a secret, or may be one.
    @ivar origin: The origin of the value: a flag, a variable, the file or the default; empty if
        there is no value.
    @ivar sighup: Whether a reload applies a change.
    """

    key: str
    value: Any
    origin: str
    default: str
    meaning: str
    sighup: bool


class Reloaded(Struct, kw_only=True):
    """
    The result of a reload.

    @ivar applied: The changed keys that were applied.
    @ivar needRestart: The keys that have changed since the start and require a restart.
    @ivar replacing: The number of workers that are being replaced one by one to apply the changes.
    """

    applied: list[str]
    needRestart: list[str]
    replacing: int


async def showConfiguration(call: ConsoleCall) -> list[OptionView]:
    """Describe each key."""
    return msgspec.convert(call.services.daemon.configuration(), list[OptionView])


async def reloadConfiguration(call: ConsoleCall) -> Reloaded:
    """
    Reload the configuration, as SIGHUP does. The file is never written.

    @raise ServiceError: C{FAILED_PRECONDITION}: the configuration was refused; nothing has changed.
    """
    found = await call.services.daemon.reload()
    if found["error"]:
        raise ServiceError("FAILED_PRECONDITION", found["error"], 409)
    call.note(applied=found["applied"], needRestart=found["needRestart"])
    return Reloaded(
        applied=list(found["applied"]),
        needRestart=list(found["needRestart"]),
        replacing=found["replacing"],
    )
