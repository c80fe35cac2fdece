"""What those who use discovery know of it."""

from collections.abc import Callable

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from storagegate.discovery.instances import Instance

Changed = Callable[[tuple[Instance, ...]], None]
"""Takes the instances of a service, all of them, whenever they have changed."""


class IProvider(Interface):
    """
    Knows where services are.

    What it last knew stays: a source that is away, slow or talks nonsense changes nothing.
    """

    problem: str | None = Attribute("What is wrong with the source now; None if nothing is.")

    def watch(service: str, changed: Changed) -> None:
        """
        Have the instances of a service told, at first and whenever they change.

        Nothing is told before something is known. To be called before C{start}.
        """

    def start() -> None:
        """Begin."""

    def stop() -> Deferred[None]:
        """End: nothing is told any more, and nothing is left behind."""
