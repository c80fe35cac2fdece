"""What registries are told."""

from attrs import frozen


@frozen
class Entry:
    """
    What a registry is told of one service.

    @ivar service: Its name there.
    @ivar id: What tells this entry from all others.
    @ivar tls: Whether others are to speak TLS there.
    """

    service: str
    id: str
    host: str
    port: int
    weight: int
    tls: bool
    tags: tuple[str, ...]
