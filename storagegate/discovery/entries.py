"""What registries are told."""

from attrs import frozen


@frozen
class Entry:
    """
    What a registry is told of one service.

    @ivar service: Its name there.
    @ivar id: What tells this entry from all others.
    """

    service: str
    id: str
    host: str
    port: int
    weight: int
    tags: tuple[str, ...]
