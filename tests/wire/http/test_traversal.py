"""Paths that want out of a folder of static files."""

import json
import os
from typing import Any

from storagegate.http.middleware.staticfiles import staticFiles
from tests.net.support import statuses
from tests.support.selection import long
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.support import get

_SECRET = b"for nobody"

# Ways to write "..", and ways to write the slash after it.
_PARENTS = (
    b"..",
    b"%2e%2e",
    b".%2e",
    b"%2E.",
    b"%252e%252e",
    b"%25252e.",
    b"%c0%ae%c0%ae",
    b"%e0%80%ae.",
    b"%u002e%u002e",
    b"%ef%bc%8e.",
    b"...",
    b"..;",
    b"..%00",
    b"%00..",
    b".\\.",
    b"..%20",
    b"..%0a",
)
_SLASHES = (
    b"/",
    b"//",
    b"/./",
    b"%2f",
    b"%2F",
    b"%252f",
    b"%5c",
    b"%255c",
    b"\\",
    b"%c0%af",
    b"%ef%bc%8f",
    b"%2f%2f",
)

ATTACKS = [
    start + parent + slash + b"secret"
    for start in (b"/", b"//", b"/inner/../", b"/inner%2f")
    for parent in _PARENTS
    for slash in _SLASHES
]


class TraversalTests(AppServedCase):
    """A folder with a file beside it."""

    # Eight hundred connections, on a machine that may be busy.
    timeout = 300

    def setUp(self) -> None:
        """Write the files."""
        super().setUp()
        base = self.mktemp()
        self.root = os.path.join(base, "root")
        os.makedirs(os.path.join(self.root, "inner"))
        for path, body in (
            ("secret", _SECRET),
            ("root/inner/open", b"for all"),
            ("root/open", b"for all"),
        ):
            with open(os.path.join(base, path), "wb") as file:
                file.write(body)

    async def _attack(self, mount: bytes, **options: Any) -> None:
        """Ask for what is beside the folder in all ways, on as many connections as it takes."""
        self.app.use(mount.decode("ascii") or "/", staticFiles(root=self.root, **options))
        port = await self.listen()
        wrong: list[str] = []
        for attack in ATTACKS:
            request = get(mount + attack, b"Connection: close")
            received = await self.exchange(port, request)
            _, _, body = received.partition(b"\r\n\r\n")
            code = statuses(received)
            isRefused = len(code) == 1 and 300 <= code[0] < 500 and _SECRET not in received
            if not isRefused or (code[0] >= 400 and not json.loads(body)["error"]):
                wrong.append(f"{attack!r}: {received!r}")
        self.assertEqual(wrong, [])
        received = await self.exchange(port, get(mount + b"/inner/open", b"Connection: close"))
        self.assertTrue(received.endswith(b"for all"), received)

    async def test_fallthrough(self) -> None:
        """Nothing outside of the folder is found, however it is written."""
        await self._attack(b"")

    async def test_last(self) -> None:
        """Nor where the folder has the last word."""
        await self._attack(b"", fallthrough=False)

    @long("takes a second or more")
    async def test_mounted(self) -> None:
        """Nor below a path."""
        await self._attack(b"/static")

    async def test_dotfiles(self) -> None:
        """Nor where files with a dot are served."""
        await self._attack(b"", dotfiles="allow", fallthrough=False)
