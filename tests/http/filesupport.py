"""A directory of files, and applications that send them."""

import os
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.testing import Client, TestResponse
from tests.support.openfiles import openFiles

# Sunday, 9 September 2001, 01:46:40.123 in Greenwich.
MODIFIED_MS = 1_000_000_000_123
MODIFIED = "Sun, 09 Sep 2001 01:46:40 GMT"
EARLIER = "Sun, 09 Sep 2001 01:46:39 GMT"
LATER = "Sun, 09 Sep 2001 01:46:41 GMT"


DIGITS = b"0123456789"


def tagOf(size: int) -> str:
    """Give the tag of a file that was made by L{FileCase.write}."""
    return f'W/"{size:x}-{MODIFIED_MS:x}"'


class FileCase(SynchronousTestCase):
    """
    A test with files.

    @ivar top: A directory that is not served.
    @ivar root: One below it that is.
    """

    def setUp(self) -> None:
        """Make the directories."""
        self.top = os.path.abspath(self.mktemp())
        self.root = os.path.join(self.top, "root")
        os.makedirs(self.root)
        self.client = Client(server.http())
        # Whatever a test does, no file stays open.
        self.addCleanup(lambda: self.assertEqual(openFiles(self.top), [], "left open"))

    def write(self, name: str, content: bytes) -> str:
        """Make a file of a known age, and give its path."""
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.utime(path, ns=(MODIFIED_MS * 1_000_000, MODIFIED_MS * 1_000_000))
        return path

    def handle(self, answer: Callable[[Any], Any]) -> None:
        """Let a new application answer everything by a function of the response."""
        app = server.http()
        app.all("/*", lambda req, res: answer(res))
        self.client = Client(app)

    def get(self, path: str = "/", method: str = "GET", **fields: str) -> TestResponse:
        """Ask, with header fields: C{if_range} is C{If-Range}."""
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        return self.client.request(method, path, headers=headers)

    def assertFields(self, response: TestResponse, **fields: str | None) -> None:
        """Assert fields of a response, C{None} for one that must not be there."""
        found = {name: response.headers.get(name.replace("_", "-")) for name in fields}
        self.assertEqual(found, fields)


class ReplyCase(FileCase):
    """A test with a file of ten digits and one of 300,000 bytes."""

    def setUp(self) -> None:
        """Make the files."""
        super().setUp()
        self.small = self.write("small.txt", DIGITS)
        self.content = b"".join(b"%07d\n" % number for number in range(37_500))
        self.large = self.write("large.bin", self.content)

    def serve(self, path: str, prepare: Any = None, **options: Any) -> None:
        """Answer everything with a file."""

        def answer(res: Any) -> Any:
            if prepare is not None:
                prepare(res)
            return res.sendFile(path, **options)

        self.handle(answer)
