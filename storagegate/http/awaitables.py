"""What is awaited where there is nothing to wait for."""

from collections.abc import Generator
from typing import Any

from storagegate.net.httperrors import ClientLost


class Ready:
    """Something awaited that has happened already."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield  # makes it a generator


class Lost:
    """Something awaited by who writes to a client that is gone."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        raise ClientLost()
        yield  # makes it a generator


READY = Ready()

LOST = Lost()
