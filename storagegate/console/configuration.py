"""The configuration: each key with its value and its origin, and reading it again."""

from typing import Any

import msgspec
from msgspec import Struct

from storagegate.console.call import ConsoleCall
from storagegate.core.errors import ServiceError


class OptionView(Struct, kw_only=True):
    """
    A key of the configuration, or an option of one of its tables.

    @ivar value: C{***} where it is a secret, or may be one.
    @ivar origin: Where the value is from: a flag, a variable, the file or the default; empty if it
        has none.
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
    What a reload has done.

    @ivar applied: The keys that have changed.
    @ivar needRestart: The keys that differ from those of the start, and take a restart.
    @ivar replacing: How many workers are being replaced, one after the other, which applies it.
    """

    applied: list[str]
    needRestart: list[str]
    replacing: int


async def showConfiguration(call: ConsoleCall) -> list[OptionView]:
    """Describe each key."""
    return msgspec.convert(call.services.daemon.configuration(), list[OptionView])


async def reloadConfiguration(call: ConsoleCall) -> Reloaded:
    """
    Read the configuration again, as SIGHUP does. The file is never written.

    @raise ServiceError: C{FAILED_PRECONDITION}: It was refused; nothing has changed.
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
