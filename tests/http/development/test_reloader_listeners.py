"""Ports that outlive the code that opened them."""

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.development.reloader import Listeners
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site


class Port:
    """A port in memory."""

    def __init__(self, description: str) -> None:
        self.description = description
        self.isOpen = True

    def stopListening(self) -> None:
        """Close."""
        self.isOpen = False


class ListenerTests(SynchronousTestCase):
    """Generations of an application."""

    def setUp(self) -> None:
        """Make the ports."""
        self.clock = Clock()
        self.ports: list[Port] = []
        self.listeners = Listeners(self.open)

    def open(self, reactor: Any, description: str, site: Any) -> Deferred[Any]:
        """Open a port, if there is none."""
        if any(port.isOpen and port.description == description != "0" for port in self.ports):
            return fail(CannotListenError("", description, OSError("taken")))
        self.ports.append(Port(description))
        return succeed(self.ports[-1])

    def listen(self, description: str, app: Any = None, makers: str = "main") -> Any:
        """Let a new application listen, or one that there is."""
        app = server.http() if app is None else app
        site = Site(app.resource, HTTPLimits(), self.clock)
        listening = self.listeners.listen(
            app, self.clock, description, site, frozenset(makers.split())
        )
        listening.addCallback(lambda served: app.adopt(*served))
        listening.addErrback(lambda reason: reason.trap(CannotListenError))
        return app

    def commit(self, remade: str = "main", successor: Any = None) -> None:
        """Let the new code have what it wants."""
        self.listeners.commit(self.clock, frozenset(remade.split()), lambda app: successor)

    def answering(self) -> dict[str, Any]:
        """Say who answers where, as sites do."""
        open = {id(port) for port in self.ports if port.isOpen}
        return {
            listener.description: listener.site.resource.app
            for listener in self.listeners.all
            if id(listener.port) in open
        }

    def test_takeOver(self) -> None:
        """The new application gets the port when all is well, not before; it is never closed."""
        old = self.listen("a")
        self.listeners.begin()
        new = self.listen("a")
        self.assertEqual(self.answering(), {"a": old})
        self.commit()
        self.assertEqual(self.answering(), {"a": new})
        self.assertEqual(len(self.ports), 1)
        self.assertEqual(len(new._serving), 1)
        self.assertEqual(old._serving, [])

    def test_limits(self) -> None:
        """The options of the new application hold for the port."""
        self.listen("a")
        self.listeners.begin()
        self.listen("a", server.http().withOptions(keepAliveTimeout=7000))
        self.commit()
        self.assertEqual(self.listeners.all[0].site.limits.keepAliveTimeout, 7)

    def test_rollBack(self) -> None:
        """If the new code fails, the old one keeps its ports, and what was opened is closed."""
        old = self.listen("a")
        self.listeners.begin()
        self.listen("a")
        self.listen("b")
        self.listeners.rollBack()
        self.assertEqual(self.answering(), {"a": old})
        self.assertEqual([port.isOpen for port in self.ports], [True, False])
        self.assertEqual(len(old._serving), 1)
        # The old code is the present one again: what it has is not free.
        self.listen("a")
        self.assertEqual(self.answering(), {"a": old})

    def test_taken(self) -> None:
        """If a port cannot be had, the whole change fails, and its code does not go on."""
        old = self.listen("a")
        self.ports.append(Port("b"))
        self.listeners.begin()
        new = self.listen("b")
        self.assertEqual(new._serving, [])
        self.assertRaises(CannotListenError, self.commit)
        self.listeners.rollBack()
        self.assertEqual(self.answering(), {"a": old})

    def test_twice(self) -> None:
        """In one generation a port is had once."""
        old = self.listen("a")
        self.listen("a")
        self.assertEqual(self.answering(), {"a": old})
        self.listeners.begin()
        new = self.listen("a")
        self.listen("a")
        self.assertRaises(CannotListenError, self.commit)
        self.listeners.rollBack()
        self.assertNotEqual(self.answering(), {"a": new})

    def test_same(self) -> None:
        """An application that was not made anew can listen again, and has the port once."""
        app = self.listen("a")
        self.listeners.begin()
        self.listen("a", app)
        self.commit()
        self.assertEqual(len(app._serving), 1)

    def test_freePorts(self) -> None:
        """Of several free ports each is taken over once."""
        old = [self.listen("0"), self.listen("0")]
        before = list(self.ports)
        self.listeners.begin()
        new = [self.listen("0"), self.listen("0")]
        self.commit()
        self.assertEqual(self.ports, before)
        self.assertEqual([app._serving[0][0] for app in new], before)
        self.assertEqual([app._serving for app in old], [[], []])

    def test_moved(self) -> None:
        """A port that the new code does not want is closed when it has had the time to listen."""
        self.listen("a")
        self.listeners.begin()
        new = self.listen("b")
        self.commit()
        self.assertTrue(self.ports[0].isOpen)
        self.clock.advance(2)
        self.assertEqual(self.answering(), {"b": new})
        self.assertFalse(self.ports[0].isOpen)

    def test_late(self) -> None:
        """New code may listen later, and gets the port at once."""
        old = self.listen("a")
        self.listeners.begin()
        self.commit()
        self.clock.advance(60)
        self.assertEqual(self.answering(), {"a": old})
        new = self.listen("a")
        self.assertEqual(self.answering(), {"a": new})

    def test_successor(self) -> None:
        """An application that has come in the place of another answers on its port."""
        self.listen("a", makers="test")
        new = server.http()
        self.listeners.begin()
        self.commit(remade="app", successor=new)
        self.clock.advance(60)
        self.assertEqual(self.answering(), {"a": new})
        self.assertEqual(len(new._serving), 1)
        # If it listens by itself a moment later, the port is its own.
        self.listen("a", new)
        self.assertEqual(len(new._serving), 1)

    def test_others(self) -> None:
        """A port of code that was not executed again stays, whatever others do."""
        other = self.listen("x", makers="other")
        self.listen("a")
        self.listeners.begin()
        new = self.listen("b")
        self.commit()
        self.clock.advance(60)
        self.assertEqual(self.answering(), {"x": other, "b": new})

    def test_forget(self) -> None:
        """A port that its application has closed is nobody's."""
        self.listen("a")
        self.listeners.forget(self.listeners.all[0].port)
        self.assertEqual(self.listeners.all, [])
