"""
The listening ports, and which application answers there.

While code is loaded again, an application that wants to listen where another does claims that
port; it gets it if all the code loads. Later, in the same generation of the code, it gets it at
once. The port is not closed meanwhile, and what it is answering is not disturbed.
"""

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.net.endpoints import listen
from storagegate.net.site import Site

_SETTLE_SECONDS = 1.0
"""How long new code may take to listen where the old did, before that is closed."""

_GRACE_SECONDS = 30.0
"""What is being answered on a port that the new code does not want is given to end in."""

_log = Logger()

Served = tuple[IListeningPort, Site]


@define(eq=False)
class Listener:
    """
    A port.

    @ivar app: Who answers.
    @ivar description: The endpoint string.
    @ivar generation: Of the code that wanted it last.
    @ivar makers: The modules that wanted it.
    """

    app: Any
    description: str
    port: IListeningPort
    site: Site
    generation: int
    makers: frozenset[str]


@define
class _Change:
    """What the code wants that is being loaded."""

    claims: list[tuple[Listener, Any, frozenset[str]]] = field(factory=list)
    opened: list[Listener] = field(factory=list)
    failures: list[Failure] = field(factory=list)


class Listeners:
    """
    All ports of the applications that are developed.

    @ivar all: The ports.
    """

    def __init__(self, open: Callable[[Any, str, Site], Deferred[IListeningPort]] = listen) -> None:
        """
        @param open: Opens a port on a reactor where an endpoint string says.
        """
        self._open = open
        self.all: list[Listener] = []
        self._generation = 0
        self._remade: frozenset[str] = frozenset()
        self._change: _Change | None = None

    def listen(
        self, app: Any, reactor: Any, description: str, site: Site, makers: frozenset[str]
    ) -> Deferred[Served]:
        """
        Listen, or take a port over.

        @param site: What is served where nobody listens yet.
        @param makers: The modules that want it.
        @return: The port and what is served there.
        """
        free = self._free(description)
        if free is not None:
            if self._change is None:
                self._take(free, app, makers)
                self._settle(reactor)
            else:
                self._change.claims.append((free, app, makers))
            return succeed((free.port, free.site))
        change = self._change
        listening = self._open(reactor, description, site)

        def opened(port: IListeningPort) -> Served:
            made = Listener(app, description, port, site, self._generation, makers)
            self.all.append(made)
            if change is not None:
                change.opened.append(made)
            self._settle(reactor)
            return port, site

        def failed(reason: Failure) -> Any:
            if change is None:
                return reason
            # It fails the whole change, and nobody who waits in the new code goes on.
            change.failures.append(reason)
            return Deferred()

        return listening.addCallbacks(opened, failed)

    def begin(self) -> None:
        """Begin to load code."""
        self._generation += 1
        self._change = _Change()

    def commit(
        self, reactor: Any, remade: frozenset[str], replacement: Callable[[Any], Any]
    ) -> None:
        """
        Let the new code have what it wants.

        @param remade: The modules that were executed.
        @param replacement: Gives the application that has come in the place of one, if one has.
        @raise Exception: If it wants a port that it cannot have; L{rollBack} has to follow.
        """
        assert self._change is not None
        change = self._change
        for failure in change.failures:
            failure.raiseException()
        self._change = None
        self._remade = remade
        for listener, app, makers in change.claims:
            self._take(listener, app, makers)
        for listener in self.all:
            if listener.generation < self._generation:
                app = replacement(listener.app)
                if app is not None:
                    app.adopt(listener.port, listener.site)
                    self._hand(listener, app)
        self._settle(reactor)

    def rollBack(self) -> None:
        """Let the old code keep what it has."""
        change, self._change = self._change, None
        self._generation -= 1
        for listener in change.opened if change is not None else ():
            self._close(listener)

    def forget(self, port: IListeningPort) -> None:
        """Forget a port that its application closes."""
        self.all = [listener for listener in self.all if listener.port is not port]

    def _free(self, description: str) -> Listener | None:
        """Give a port that was the old code's, and that the new does not have yet."""
        claimed = [claim[0] for claim in self._change.claims] if self._change is not None else []
        for listener in self.all:
            if (
                listener.description == description
                and listener.generation < self._generation
                and listener not in claimed
            ):
                return listener
        return None

    def _take(self, listener: Listener, app: Any, makers: frozenset[str]) -> None:
        """Let an application answer on a port, which it has among its own already."""
        listener.makers = makers
        listener.generation = self._generation
        self._hand(listener, app)

    def _hand(self, listener: Listener, app: Any) -> None:
        listener.app.forget(listener.port)
        listener.app = app
        listener.site.resource = app.resource
        listener.site.limits = app.settings.limits()

    def _settle(self, reactor: Any) -> None:
        """Close, after a while, what the new code wants no more, if it wants anything."""
        isNew = any(each.generation == self._generation for each in self.all)
        if self._generation and self._change is None and isNew:
            reactor.callLater(_SETTLE_SECONDS, self._closeUnwanted, self._generation)

    def _closeUnwanted(self, generation: int) -> None:
        if generation != self._generation or self._change is not None:
            return
        for listener in list(self.all):
            if listener.generation < generation and listener.makers & self._remade:
                _log.info("no longer listening on {endpoint}", endpoint=listener.description)
                self._close(listener)

    def _close(self, listener: Listener) -> None:
        self.forget(listener.port)
        listener.app.forget(listener.port)
        listener.port.stopListening()
        listener.site.drain(_GRACE_SECONDS)
