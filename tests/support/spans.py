"""A pipeline of spans that keeps them."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, succeed

from storagegate.core.context import Tracing


@frozen
class KeptSpan:
    """A span as it is added to a pipeline."""

    tracing: Tracing
    name: str
    attributes: Mapping[str, Any]
    seconds: float
    isFailed: bool
    isClient: bool


class KeptPipeline:
    """
    Keeps spans.

    @ivar room: How many more it admits.
    """

    def __init__(self) -> None:
        self.spans: list[KeptSpan] = []
        self.room = 1000

    def admit(self) -> bool:
        """Return whether there is room."""
        self.room -= 1
        return self.room >= 0

    def add(
        self,
        tracing: Tracing,
        name: str,
        attributes: Mapping[str, Any],
        endNs: int,
        seconds: float,
        *,
        isFailed: bool = False,
        isClient: bool = False,
    ) -> None:
        """Keep a span."""
        self.spans.append(KeptSpan(tracing, name, attributes, seconds, isFailed, isClient))

    def stop(self) -> Deferred[None]:
        """Do nothing."""
        return succeed(None)
