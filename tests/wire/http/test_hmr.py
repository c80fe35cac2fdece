"""Code that changes while it is served: real processes, files and sockets."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from twisted.internet.endpoints import clientFromString, connectProtocol
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import deferLater

from tests.support.modules import CHECKOUT
from tests.support.ports import heldPort
from tests.support.selection import long
from tests.wire.http.developing import APP, DevelopCase
from tests.wire.http.support import RawClient, get


class ReloadTests(DevelopCase):
    """A script that ends with C{app.run()}."""

    async def setUpScript(
        self, more: str = "", end: str = "app.run()\n", **environment: str
    ) -> None:
        """Start the script."""
        self.write("helper.py", "WORD = 'one'\n")
        self.more, self.end = more, end
        self.writeScript()
        await self.start("app.py", **environment)

    def writeScript(self, find: str = "", replace: str = "") -> None:
        """Write the script, with a change perhaps."""
        text = APP.format(port=self.port) + self.more + self.end
        self.write("app.py", text.replace(find, replace) if find else text)

    @long("takes seconds")
    async def test_live(self) -> None:
        """
        A change of the script or of a module is live at the cost of less than a second; no
        connection is refused meanwhile, idle ones are closed, and pages reload.
        """
        await self.setUpScript()
        # Of its processor: how long others keep it from that is no promise.
        best = 10.0
        changes = (
            ("two", "helper.py", lambda: self.write("helper.py", "WORD = 'two'\n")),
            ("three", "app.py", lambda: self.writeScript("send(WORD)", "send('three')")),
            ("two", "app.py", self.writeScript),
            ("four", "helper.py", lambda: self.write("helper.py", "WORD = 'four'\n")),
        )
        for word, name, change in changes:
            page = await self.openPage()
            kept = await self.connect()
            kept.write(get(b"/"))
            await kept.until(b"\r\n\r\n")
            began = self.script.processorSeconds()
            change()
            await self.answers(word)
            told = await self.hears(page, "reload")
            best = min(best, self.script.processorSeconds() - began)
            self.assertEqual(told["files"], [str(self.directory / name)])
            # The page learns from the new process that it is of an older version.
            self.assertTrue((await page.client.closed).endswith(b"0\r\n\r\n"))
            again = await self.openPage()
            self.assertNotEqual(again.events[0], page.events[0])
            await kept.closed
            self.assertEqual(await self.ask(), word)
        self.assertLess(best, 1.0)
        self.assertEqual(self.script.output.count("listening on"), 1)

    @long("takes seconds")
    async def test_broken(self) -> None:
        """
        What does not compile or load leaves the old code in place, and is told to pages with its
        place; when it is repaired it is live.
        """
        await self.setUpScript()
        page = await self.openPage()
        helper = str(self.directory / "helper.py")
        for count, (text, title, line) in enumerate(
            (
                ("WORD = 'two'\nx = = 1\n", "SyntaxError: invalid syntax", 2),
                ("WORD = 'two'\n\n1 / 0\n", "ZeroDivisionError: division by zero", 3),
            ),
            1,
        ):
            self.write("helper.py", text)
            told = await self.hears(page, "error", count)
            self.assertEqual((told["title"], told["file"], told["line"]), (title, helper, line))
            self.assertEqual(await self.ask(), "one")
            await self.writes(title)
        # A page that is opened now is told, too.
        await self.hears(await self.openPage(), "error")
        self.write("helper.py", "WORD = 'three'\n")
        await self.hears(page, "reload")
        self.assertEqual(await self.ask(), "three")
        self.assertNotIn("Unhandled", self.script.output)

    @long("takes seconds")
    async def test_missing(self) -> None:
        """A module that is wanted before it is written, or broken when it is new, comes later."""
        await self.setUpScript()
        page = await self.openPage()
        self.writeScript("from helper", "from later.words")
        told = await self.hears(page, "error")
        self.assertIn("ModuleNotFoundError", told["title"])
        self.assertEqual((told["file"], told["line"]), (str(self.directory / "app.py"), 2))
        self.write("later/words.py", "WORD = 1 / 0\n")
        self.writeScript("from helper", "import os\nfrom later.words")
        told = await self.hears(page, "error", 2)
        self.assertEqual(told["file"], str(self.directory / "later/words.py"))
        self.write("later/words.py", "WORD = 'late'\n")
        await self.answers("late")

    @long("takes seconds")
    async def test_inFlight(self) -> None:
        """
        A response that is being sent goes on with the old code, while others get the new; then the
        old process ends as if the reactor had been stopped.
        """
        more = (
            "import os\n"
            "from twisted.internet import reactor\n"
            "from twisted.internet.task import deferLater\n"
            "@app.get('/stream')\n"
            "async def stream(req, res):\n"
            "    for count in range(3):\n"
            "        await res.write(f'{WORD}{count} ')\n"
            "        while not os.path.exists(f'go{count}'):\n"
            "            await deferLater(reactor, 0.01)\n"
            "    res.end()\n"
        )
        await self.setUpScript(more, "app.run()\nprint(WORD, 'ended')\n")
        client = await self.connect()
        client.write(get(b"/stream", b"Connection: close"))
        await client.until(b"one0 ")
        self.write("helper.py", "WORD = 'two'\n")
        await self.answers("two")
        for count in (1, 2):
            self.write(f"go{count - 1}", "")
            await client.until(b"one%d " % count)
            self.assertEqual(await self.ask(), "two")
        self.assertNotIn("ended", self.script.output)
        self.write("go2", "")
        self.assertTrue((await client.closed).endswith(b"0\r\n\r\n"))
        await self.writes("one ended\n")
        self.assertEqual(await self.ask(), "two")

    @long("takes seconds")
    async def test_state(self) -> None:
        """A reload is a new process: no module keeps its state."""
        self.write("counter.py", "hits = []\n")
        more = (
            "import counter\n"
            "@app.get('/hits')\n"
            "def hits(req, res):\n"
            "    counter.hits.append(1)\n"
            "    res.type('txt').send(f'{WORD}{len(counter.hits)}')\n"
        )
        await self.setUpScript(more)
        for count in (1, 2):
            self.assertEqual(await self.ask(b"/hits"), f"one{count}")
        self.write("helper.py", "WORD = 'two'\n")
        await self.answers("two")
        self.assertEqual(await self.ask(b"/hits"), "two1")

    @long("takes seconds")
    async def test_sameSecond(self) -> None:
        """A change that leaves length and time as they were is live, compiled files or not."""
        self.write("helper.py", "WORD = 'one'\n")
        os.utime(self.directory / "helper.py", (1_700_000_000, 1_700_000_000))
        self.more, self.end = "", "app.run()\n"
        self.writeScript()
        await self.start("app.py")
        for word in ("two", "six"):
            new = self.directory / "new"
            new.write_text(f"WORD = '{word}'\n")
            os.utime(new, (1_700_000_000, 1_700_000_000))
            os.replace(new, self.directory / "helper.py")
            await self.answers(word)

    @long("takes seconds")
    async def test_lazy(self) -> None:
        """A module that is imported by a request is watched from then on."""
        self.write("lazy.py", "WORD = 'lazy'\n")
        more = (
            "@app.get('/lazy')\n"
            "def show(req, res):\n    import lazy\n    res.type('txt').send(lazy.WORD)\n"
        )
        await self.setUpScript(more)
        self.assertEqual(await self.ask(b"/lazy"), "lazy")
        self.write("lazy.py", "WORD = 'changed'\n")
        # The state of now is the first that is known: one of two changes comes later than that.
        began, pause = self.script.output.count("reloaded"), 1.0
        while self.script.output.count("reloaded") == began:
            (self.directory / "lazy.py").touch()
            end = self.reactor.seconds() + pause
            while self.script.output.count("reloaded") == began and self.reactor.seconds() < end:
                await deferLater(self.reactor, 0.01)
            # A change during a reload begins another one.
            pause *= 3
        await self.answers("changed", b"/lazy")

    @long("takes seconds")
    async def test_exit(self) -> None:
        """A program that ends before it listens does not end the one that serves."""
        await self.setUpScript()
        page = await self.openPage()
        for count, (line, text) in enumerate(
            (("exit(3)\n", "exit code 3"), ("import os; os.abort()\n", "signal 6")), 1
        ):
            self.write("helper.py", line)
            told = await self.hears(page, "error", count)
            self.assertIn(text, told["title"])
            self.assertEqual(await self.ask(), "one")
            await self.writes(text)

    @long("takes seconds")
    async def test_hangs(self) -> None:
        """A program in an endless loop is killed after the grace period, and replaced."""
        # Python imports this at its start, also in the supervisor.
        self.write(
            "start/sitecustomize.py",
            "from storagegate.http.development import supervisor\n"
            "supervisor.GRACE_SECONDS = supervisor._KILL_SECONDS = 1.0\n",
        )
        path = os.pathsep.join([str(self.directory / "start"), str(CHECKOUT)])
        hang = "@app.get('/hang')\ndef hang(req, res):\n    while True: pass\n"
        await self.setUpScript(hang, PYTHONPATH=path)
        client = await self.connect()
        client.write(get(b"/hang"))
        self.write("helper.py", "WORD = 'two'\n")
        await self.answers("two")

    @long("takes seconds")
    async def test_ends(self) -> None:
        """A program that ends by itself ends the whole, with its status."""
        await self.setUpScript(
            "@app.get('/end')\ndef end(req, res):\n    import os\n    os._exit(7)\n"
        )
        self.write("helper.py", "WORD = 'two'\n")
        await self.answers("two")
        client = await self.connect()
        client.write(get(b"/end"))
        await self.script.ended
        self.assertEqual(self.script.status, 7)

    @long("takes a second or more")
    async def test_arguments(self) -> None:
        """A program has its arguments, its own module C{__main__}, and its file."""
        self.write("helper.py", "WORD = 'one'\n")
        more = (
            "import sys\n"
            "import __main__\n"
            "@app.get('/main')\n"
            "def main(req, res):\n"
            "    isMain = __name__ == '__main__' and __main__.main is main\n"
            "    res.json([sys.argv, isMain, __file__, sys.path[0]])\n"
        )
        self.write("app.py", APP.format(port=self.port) + more + "app.run()\n")
        await self.start("app.py", "-x", "y")
        directory = str(self.directory)
        expected = [["app.py", "-x", "y"], True, str(self.directory / "app.py"), directory]
        self.assertEqual(json.loads(await self.ask(b"/main")), expected)

    @long("takes seconds")
    async def test_port(self) -> None:
        """If the port changes, the new one is opened and the old one closed."""
        await self.setUpScript()
        old, self.port = self.port, heldPort(self)
        self.writeScript()
        await self.until(lambda: self.script.output.count("listening on") == 2)
        await self.answers("one")
        await self.writes("no longer listening")
        # The supervisor closes its copy of the socket a moment after the program.
        with self.assertRaises(ConnectionRefusedError):
            while True:
                await self.connect(old)
                await deferLater(self.reactor, 0.01)

    @long("takes seconds")
    async def test_takenPort(self) -> None:
        """A port that somebody else has is an error like others: the old one serves on."""
        await self.setUpScript()
        page = await self.openPage()
        other = self.reactor.listenTCP(0, self.factory(), interface="127.0.0.1")
        self.addCleanup(other.stopListening)
        self.writeScript(f"port={self.port}", f"port={other.getHost().port}")
        told = await self.hears(page, "error")
        self.assertIn("CannotListenError", told["title"])
        self.assertEqual(await self.ask(), "one")

    def factory(self) -> Any:
        """Make something that listens."""
        from twisted.internet.protocol import Factory

        return Factory()

    @long("takes seconds")
    async def test_files(self) -> None:
        """Changes of the files that pages are made of reload pages, and no code."""
        more = (
            "from storagegate.http import staticFiles\n"
            "app.use('/static', staticFiles('public'))\n"
            "app.withRoutes({'/page': 'page.html'})\n"
        )
        self.write("public/deep/a.css", "x")
        self.write("page.html", "<p>1")
        await self.setUpScript(more)
        page = await self.openPage()
        self.write("public/deep/a.css", "y")
        told = await self.hears(page, "reload")
        self.assertEqual(told["files"], [str(self.directory / "public/deep/a.css")])
        self.write("public/new.html", "x")
        await self.hears(page, "reload", 2)
        self.assertNotIn("listening", self.script.output.partition("\n")[2])
        self.assertIn("<p>1<script", await self.ask(b"/page"))
        self.write("page.html", "<p>2")
        told = await self.hears(page, "reload", 3)
        self.assertEqual(told["files"], [str(self.directory / "page.html")])
        self.write("public/notes.txt", "x")
        self.write("helper.py", "WORD = 'two'\n")
        told = await self.hears(page, "reload", 4)
        self.assertEqual(told["files"], [str(self.directory / "helper.py")])

    @long("takes a second or more")
    async def test_console(self) -> None:
        """
        The console shows where the application listens, requests, and an error once, with its
        traceback; and in no colours, since this is no terminal.
        """
        await self.setUpScript("app.get('/fails', lambda req, res: 1 / 0)\n")
        self.assertIn("Internal Server Error", await self.ask(b"/fails"))
        await self.writes("GET /fails 500")
        output = self.script.output
        self.assertTrue(output.startswith(f"listening on http://127.0.0.1:{self.port}\n"))
        self.assertEqual(output.count("ZeroDivisionError: division by zero"), 1)
        self.assertEqual(output.count("a handler failed"), 1)
        self.assertNotIn("storagegate/http/pipeline.py", output)
        self.assertNotIn("\x1b", output)

    @long("takes seconds")
    async def test_stop(self) -> None:
        """A script that was started again ends in order, though pages are open."""
        await self.setUpScript()
        await self.openPage()
        self.write("helper.py", "WORD = 'two'\n")
        await self.answers("two")
        page = await self.openPage()
        self.script.transport.signalProcess(signal.SIGINT)  # type: ignore[union-attr]
        await self.script.ended
        self.assertTrue((await page.client.closed).endswith(b"0\r\n\r\n"))

    @long("takes a second or more")
    async def test_interrupt(self) -> None:
        """Ctrl-C, which a terminal sends to all processes, ends a script in order and quietly."""
        await self.setUpScript("", "app.run()\nprint('ended')\n")
        written = len(self.script.output)
        pid: int = self.script.transport.pid  # type: ignore[union-attr]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGINT)
        await self.script.ended
        self.assertEqual(self.script.output[written:], "ended\n")

    @long("takes seconds")
    async def test_off(self) -> None:
        """Code with C{hmr} switched off takes the port over, and is watched on."""
        await self.setUpScript()
        self.writeScript('"hmr": True', '"hmr": False')
        await self.writes("reloaded")
        self.assertIn("Not Found", await self.ask(b"/__storagegate/hmr"))
        self.writeScript()
        page = await self.openPageLater()
        self.write("helper.py", "WORD = 'two'\n")
        await self.hears(page, "reload")

    async def openPageLater(self) -> Any:
        """Open a page as soon as pages can be opened."""
        await self.until(lambda: self.script.output.count("reloaded") == 2)
        return await self.openPage()


class ShapeTests(DevelopCase):
    """Other shapes of programs."""

    async def changeTo(self, word: str) -> None:
        """
        Have a word served by a process that is not being replaced: one that is closes connections
        that have come to it, so a change without a difference would be seen to end too early.
        """
        if await self.ask() != word:
            self.write("helper.py", f"WORD = '{word}'\n")
            await self.answers(word)

    @long("takes seconds")
    async def test_reactor(self) -> None:
        """A script that listens and runs the reactor itself."""
        end = (
            "from twisted.internet import reactor\n"
            "def begin():\n    app.listen()\n"
            "reactor.callWhenRunning(begin)\n"
            "reactor.run()\n"
        )
        self.write("helper.py", "WORD = 'one'\n")
        self.write("app.py", APP.format(port=self.port) + end)
        await self.start("app.py")
        self.write("helper.py", "WORD = 'two'\n")
        await self.answers("two")
        self.write("helper.py", "WORD = 'three'\n")
        await self.answers("three")

    @long("takes seconds")
    async def test_react(self) -> None:
        """A script that listens in a coroutine, after it has waited for something."""
        end = (
            "from twisted.internet.defer import Deferred\n"
            "from twisted.internet.task import deferLater, react\n"
            "async def main(reactor):\n"
            "    await deferLater(reactor, 0.2)\n"
            "    app = server.http().withOptions(development={'hmr': True, 'console': True})\n"
            "    app.get('/', lambda req, res: res.type('txt').send(WORD))\n"
            f"    await app.listen({self.port})\n"
            "    await Deferred()\n"
            "react(lambda reactor: Deferred.fromCoroutine(main(reactor)))\n"
        )
        self.write("helper.py", "WORD = 'one'\n")
        self.write("app.py", APP.format(port=self.port) + end)
        await self.start("app.py")
        for word in ("two", "three"):
            self.write("helper.py", f"WORD = '{word}'\n")
            await self.answers(word)
        self.assertEqual(self.script.output.count("listening on"), 1)

    @long("takes seconds")
    async def test_package(self) -> None:
        """A package that is run by C{python -m}, in which modules import each other relatively."""
        self.write("shop/__init__.py", "")
        self.write("shop/words.py", "WORD = 'one'\n")
        self.write("shop/core.py", APP.format(port=self.port).replace("from helper", "from .words"))
        more = "@app.get('/more')\ndef more(req, res):\n    res.type('txt').send('a' + WORD)\n"
        self.write("shop/views.py", "from .core import app\nfrom .words import WORD\n" + more)
        self.write("shop/__main__.py", "from . import core, views\ncore.app.run()\n")
        await self.start("-m", "shop")
        self.assertEqual(await self.ask(b"/more"), "aone")
        # The application is the core's, which has not changed: its routes are not doubled.
        changed = more.replace("'a'", "'b'")
        self.write("shop/views.py", "from .core import app\nfrom .words import WORD\n" + changed)
        await self.answers("bone", b"/more")
        self.write("shop/words.py", "WORD = 'two'\n")
        await self.answers("btwo", b"/more")
        self.assertEqual(await self.ask(), "two")

    @long("takes seconds")
    async def test_ports(self) -> None:
        """An application on several ports, one of them a UNIX socket, has them all over reloads."""
        self.write("helper.py", "WORD = 'one'\n")
        end = "app.listen('unix:s')\napp.listen()\napp.run()\n"
        self.write("app.py", APP.format(port=self.port) + end)
        await self.start("app.py")
        await self.until(lambda: self.script.output.count("listening on") == 2)
        for word in ("one", "two", "three"):
            await self.changeTo(word)
            client = RawClient()
            endpoint = clientFromString(self.reactor, f"unix:{os.path.relpath(self.directory)}/s")
            await connectProtocol(endpoint, client)
            client.write(get(b"/", b"Connection: close"))
            self.assertTrue((await client.closed).endswith(b"\r\n\r\n" + word.encode()))
        self.assertEqual(self.script.output.count("listening on"), 2)
        self.script.signal("TERM")
        await self.script.ended
        self.assertFalse((self.directory / "s").exists())

    @long("takes seconds")
    async def test_otherScript(self) -> None:
        """An application that C{python -c} serves."""
        self.write("helper.py", "WORD = 'one'\n")
        self.write("app.py", APP.format(port=self.port))
        serve = (
            "from app import app; app.listen(); from twisted.internet import reactor; reactor.run()"
        )
        await self.start("-c", serve)
        for word in ("two", "three"):
            self.write("helper.py", f"WORD = '{word}'\n")
            await self.answers(word)

    @long("takes seconds")
    async def test_wires(self) -> None:
        """The wires of a gateway that an application opens are those of the new code, too."""
        numbers = {name: heldPort(self) for name in ("tcp", "udp", "grpc")}
        ports = {name: {"port": number} for name, number in numbers.items()}
        begin = (
            "from storagegate import createProtocolGateway\n"
            f"gateway = createProtocolGateway(**{ports!r})\n"
            "async def word(request, context):\n    return {'word': WORD}\n"
            "text = {'type': 'object', 'properties': {'word': {'type': 'string'}}}\n"
            "gateway.addService('S', methods={'word': {'handler': word, 'output': text}})\n"
            "app.withOptions(**gateway.getTCPConfig(), **gateway.getUDPConfig(),"
            " **gateway.getGRPCConfig())\n"
        )
        self.write("helper.py", "WORD = 'one'\n")
        self.write("app.py", APP.format(port=self.port) + begin + "app.run()\n")
        await self.start("app.py")
        for word in ("one", "two", "three"):
            await self.changeTo(word)
            client = await self.connectLater(numbers["tcp"])
            client.write(b'{"id": 1, "service": "S", "method": "word"}\n')
            await client.until(b"\n")
            self.assertIn(word.encode(), client.received)
        self.assertFalse(self.script.ended.called, self.script.output)
        self.assertNotIn("listen on", self.script.output)

    async def connectLater(self, port: int) -> Any:
        """Connect as soon as there is a listener."""
        while True:
            try:
                return await self.connect(port)
            except ConnectionRefusedError:
                await deferLater(self.reactor, 0.01)

    @long("takes a second or more")
    async def test_logging(self) -> None:
        """Where a script logs already, errors are written there, and not twice."""
        begin = "import sys\nfrom twisted.python import log\nlog.startLogging(sys.stdout)\n"
        self.write("helper.py", "WORD = 'one'\n")
        end = "app.get('/fails', lambda req, res: 1 / 0)\napp.run()\n"
        self.write("app.py", begin + APP.format(port=self.port) + end)
        await self.start("app.py")
        await self.ask(b"/fails")
        await self.writes("GET /fails 500")
        await self.ask()
        await self.writes("GET / 200")
        # Twisted's log names the type with its module.
        found = re.findall("ZeroDivisionError: division by zero", self.script.output)
        self.assertEqual(len(found), 1)
        self.assertNotIn("selected twice", self.script.output)

    async def test_service(self) -> None:
        """Outside of development nothing of it is imported."""
        self.write("helper.py", "WORD = 'one'\n")
        text = APP.format(port=self.port).replace(
            'development={"hmr": True, "console": True}', "compression={}"
        )
        end = (
            "import sys\n"
            "app.get('/loaded', lambda req, res: res.json(\n"
            "    [name for name in sys.modules if name.startswith('storagegate.http.develop')]))\n"
            "app.listen().addCallback(lambda port: print('listening'))\n"
            "from twisted.internet import reactor\nreactor.run()\n"
        )
        self.write("app.py", text + end)
        await self.start("app.py")
        self.assertEqual(await self.ask(b"/loaded"), "[]")
