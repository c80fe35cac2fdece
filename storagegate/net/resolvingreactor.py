"""A reactor with a name resolver of its own, for the endpoints of clients."""

from typing import Any

from twisted.internet.interfaces import IHostnameResolver, IReactorPluggableNameResolver
from zope.interface import implementer


@implementer(IReactorPluggableNameResolver, IHostnameResolver)
class ResolvingReactor:
    """
    A reactor that resolves names by itself: subclasses have C{resolveHostName}, see
    C{IHostnameResolver}. Everything else is the wrapped reactor's.
    """

    def __init__(self, reactor: Any) -> None:
        """
        @param reactor: The wrapped reactor.
        """
        self._reactor = reactor
        self.nameResolver = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        """Refuse: this one is used."""
        raise NotImplementedError
