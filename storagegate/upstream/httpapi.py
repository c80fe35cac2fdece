"""Reads what sources answer: nothing in it is believed to be as it should."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from storagegate.core.files import FileTooLong, readSmallFile
from storagegate.upstream.instances import MAX_INSTANCES, MAX_WEIGHT, Instance, distinct
from storagegate.upstream.provider import SourceError

T = TypeVar("T")
R = TypeVar("R")

# Of a token or a password.
_MAX_SECRET = 64 * 1024


def readMessage(data: bytes, kind: type[T], lax: bool = False) -> T:
    """
    Read JSON of a known form.

    @param lax: Whether numbers may be written as text, as Protocol Buffers do.
    @raise SourceError: If it is something else.
    """
    try:
        return msgspec.json.decode(data, type=kind, strict=not lax)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise SourceError(f"answers with nonsense: {error}") from None


def readEach(
    raw: Iterable[R], read: Callable[[R], Iterable[Instance]]
) -> tuple[tuple[Instance, ...], str | None]:
    """
    Read the entries of a list.

    One that is nonsense is left out, for it says nothing of the others. If all are, it is the
    list that is not to be believed.

    @param read: Gives the instances of an entry, or raises C{ValueError} or L{SourceError}.
    @return: The instances, and what is wrong with the last entry that was left out.
    @raise SourceError: If none can be read, or there are too many.
    """
    instances: list[Instance] = []
    good, wrong = 0, None
    for each in raw:
        try:
            instances.extend(read(each))
            good += 1
        except (ValueError, SourceError) as error:
            wrong = f"an entry is left out: {error}"
        if len(instances) > MAX_INSTANCES:
            raise SourceError(f"knows more than {MAX_INSTANCES} instances")
    if wrong is not None and not good:
        raise SourceError(wrong)
    return distinct(instances), wrong


def boundedWeight(weight: int) -> int:
    """Give a weight that an instance may have: that of others may be larger, or 0."""
    return min(max(weight, 1), MAX_WEIGHT)


def readSecret(file: str) -> str:
    """
    Read a token or a password from a file, as it is now.

    @raise SourceError: If it is not there, or could not stand in a field of HTTP.
    """
    try:
        text = readSmallFile(file, _MAX_SECRET).strip().decode("ascii")
    except OSError as error:
        raise SourceError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SourceError(f"cannot read {file}: not ASCII") from None
    except FileTooLong as error:
        raise SourceError(f"cannot read {file}: {error}") from None
    if not text or not text.isprintable():
        raise SourceError(f"there is no secret in {file}")
    return text


def asJSON(message: Any) -> bytes:
    """Write a message."""
    return msgspec.json.encode(message)
