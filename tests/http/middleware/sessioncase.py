"""An application with sessions, for the tests of them."""

from typing import Any
from urllib.parse import quote

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http import MemorySessionStore, session
from storagegate.net.http.cookies import signValue
from tests.http.middleware.browser import Browser

SECRET = "keyboard cat"


class LoggingStore(MemorySessionStore):
    """
    A store that says what was asked of it.

    @ivar calls: Names and ids.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []

    def get(self, id: str) -> Any:
        """Give a session."""
        self.calls.append(("get", id))
        return super().get(id)

    def set(self, id: str, *rest: Any) -> None:
        """Keep a session."""
        self.calls.append(("set", id))
        super().set(id, *rest)

    def replace(self, id: str, *rest: Any) -> None:
        """Change a session."""
        self.calls.append(("replace", id))
        super().replace(id, *rest)

    def touch(self, id: str, *rest: Any) -> None:
        """Keep a session for longer."""
        self.calls.append(("touch", id))
        super().touch(id, *rest)


class SessionCase(SynchronousTestCase):
    """An application with sessions that counts its visits."""

    def use(self, **options: Any) -> Browser:
        """Make it, with a browser."""
        self.store = LoggingStore()
        self.browser = Browser()
        self.app = self.browser.app
        options = {"secret": SECRET, "store": self.store, **options}
        self.app.use(session(**options))

        @self.app.get("/count")
        def count(req: Any, res: Any) -> None:
            req.session.count = req.session.get("count", 0) + 1
            res.send(f"{req.session.count}")

        @self.app.get("/look")
        def look(req: Any, res: Any) -> None:
            res.json({"id": req.sessionID, "content": req.session})

        return self.browser

    def look(self, **headers: str) -> Any:
        """Ask what is in the session."""
        return self.browser.get("/look", **headers).json()


def signed(id: str, secret: str = SECRET, name: str = "connect.sid") -> str:
    """Write a cookie."""
    return f"{name}=s%3A{quote(signValue(id, secret), safe='')}"
