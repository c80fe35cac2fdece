"""
Live reload of open pages: a script in each page listens to server-sent events.

::

    hello   {"version"}                        first on each stream
    error   {"title", "file", "line", "text"}  a change does not load; repeated on new streams
    reload  {"version", "files"}               files have changed
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from secrets import token_hex
from typing import Any

from zope.interface import implementer

from storagegate.http.contenttypes import parseContentType
from storagegate.http.dispatch import LayerList
from storagegate.http.encoding import IBodyEncoder
from storagegate.http.middleware.staticfiles import StaticOptions
from storagegate.net.http.interfaces import ClientLost

PAGE_SUFFIXES = (".css", ".htm", ".html", ".js", ".mjs", ".svg", ".xhtml")
"""Suffixes of files that make up pages: a change of a served file reloads pages."""

_EVENTS_PATH = "/__storagegate/hmr"
_SCRIPT_PATH = _EVENTS_PATH + ".js"

_SETTLE_SECONDS = 0.04
"""Time that files have to stay unchanged, as editors write them in several steps."""

_MAX_SETTLE_ROUNDS = 10
"""Maximum number of rounds to wait for a file that is written continuously."""

_MAX_FILES = 10_000
"""Maximum number of files below a watched directory: checking as many takes 30 ms."""

_MAX_STREAMS = 100
"""Maximum number of streams; each is a visible page in a browser."""

_MAX_SENT = 1000
"""Maximum number of files watched because C{sendFile} sent them."""

_HTML = ("text/html", "application/xhtml+xml")

# Types that may change while pages are open: a reload must not use a cached copy.
_UNCACHED = (*_HTML, "text/css", "text/javascript", "application/javascript", "image/svg+xml")

# Values of Sec-Fetch-Dest for pages; fragments requested by scripts are not pages.
_DOCUMENTS = ("document", "iframe", "frame")

_CONDITIONS = (b"if-none-match", b"if-modified-since")

_BODY_END = re.compile(rb"</body[\s>]", re.IGNORECASE)

# The beginning of that tag at the end of a chunk.
_CUT_END = re.compile(rb"<(?:/(?:b(?:o(?:dy?)?)?)?)?\Z", re.IGNORECASE)


class ChangeNotifier:
    """
    Finds changes of files and directory trees by comparing the modification time, size and inode of
    files (editors write a new file and rename it).

    @ivar roots: The files and directories, each with the states of the files there.
    """

    def __init__(self, suffixes: tuple[str, ...]) -> None:
        self.roots: dict[str, dict[str, tuple[int, int, int]]] = {}
        self._suffixes = suffixes

    def add(self, root: str) -> None:
        """
        Watch a file or directory.

        @param root: The path; the first call records its current state.
        """
        if root not in self.roots:
            self.roots[root] = self._find(root)

    def check(self) -> set[str]:
        """
        Return the files that were changed, removed, or added to a directory.

        May be called in a thread, one call at a time.
        """
        changed = set()
        for root, before in list(self.roots.items()):
            found = self.roots[root] = self._find(root)
            changed |= {path for path, _ in before.items() ^ found.items()}
        return changed

    def settled(self) -> set[str]:
        """
        Return the changes of L{check} once no more follow. Blocks if there are changes.

        May be called in a thread, as L{check}.
        """
        changed = more = self.check()
        for _ in range(_MAX_SETTLE_ROUNDS):
            if not more:
                break
            time.sleep(_SETTLE_SECONDS)
            more = self.check()
            changed |= more
        return changed

    def _find(self, root: str) -> dict[str, tuple[int, int, int]]:
        found = {}
        for path in islice(self._paths(root), _MAX_FILES):
            with suppress(OSError):
                status = os.stat(path)
                found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return found

    def _paths(self, root: str) -> Iterator[str]:
        if not os.path.isdir(root):
            yield root
        for parent, children, names in os.walk(root):
            children[:] = [
                each
                for each in children
                if each not in ("node_modules", "__pycache__") and not each.startswith(".")
            ]
            for name in names:
                if name.endswith(self._suffixes):
                    yield os.path.join(parent, name)


class LiveReloadHub:
    """
    Sends events to the open pages.

    @ivar files: Files and directories whose changes reload pages.
    """

    def __init__(self) -> None:
        # Differs between processes, so that pages notice a restart of the program.
        self._process = token_hex(4)
        self._count = 0
        self._error: Mapping[str, Any] | None = None
        self._streams: dict[Any, None] = {}
        self.files = ChangeNotifier(PAGE_SUFFIXES)

    @property
    def version(self) -> str:
        """Return the current version of the code and files of pages."""
        return f"{self._process}.{self._count}"

    def connect(self, res: Any) -> None:
        """Begin a stream of events; it ends when its client disconnects, or by L{endAll}."""
        if len(self._streams) >= _MAX_STREAMS:
            res.status(503).header("Retry-After", "5").send("There are too many open pages")
            return
        res.header({"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        res.startBody(None)
        self._streams[res] = None
        res.on("close", lambda: self._streams.pop(res, None))
        self._send(res, _event("hello", {"version": self.version}))
        if self._error is not None:
            self._send(res, _event("error", self._error))

    def noteFile(self, path: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> None:
        """
        Watch a file that is about to be sent.

        @param path: The path; files without one of L{PAGE_SUFFIXES} are ignored.
        @param root: The base of a relative path; C{None} for the current directory.
        """
        name = os.path.abspath(os.path.join(os.fspath(root or ""), os.fspath(path)))
        if name.endswith(PAGE_SUFFIXES) and len(self.files.roots) < _MAX_SENT:
            self.files.add(name)

    def reload(self, files: list[str]) -> None:
        """Reload all pages; a page without a stream reloads when it reconnects."""
        self._count += 1
        self._broadcast(_event("reload", {"version": self.version, "files": files}))

    def fail(self, report: Mapping[str, Any]) -> None:
        """Show an error in all pages."""
        self._error = report
        self._broadcast(_event("error", report))

    def beat(self) -> None:
        """Send a comment, so that proxies keep idle connections open."""
        self._broadcast(":\n\n")

    def endAll(self) -> None:
        """End all streams; pages reconnect."""
        for res in list(self._streams):
            del self._streams[res]
            res.end()

    def _broadcast(self, text: str) -> None:
        for res in list(self._streams):
            self._send(res, text)

    def _send(self, res: Any, text: str) -> None:
        try:
            isBehind = res.raw.send(text.encode("utf-8")) is not None
        except ClientLost:
            return
        if isBehind:
            # The client does not read, so nothing is buffered for it. It may reconnect.
            res.raw.abort()


def _event(name: str, data: Mapping[str, Any]) -> str:
    # A page that loses the stream reconnects after half a second.
    return f"retry: 500\nevent: {name}\ndata: {json.dumps(data)}\n\n"


def liveReload(hub: LiveReloadHub) -> Callable[[Any, Any, Any], Any]:
    """
    Make middleware that serves the script and the events, and inserts the script into pages.

    It must come first, so that a page is changed before other middleware compresses it.

    @param hub: The hub of the process, to which open pages connect.
    """

    def serve(req: Any, res: Any, next: Any) -> Any:
        # The application may be mounted in another one with this middleware.
        if req.method in ("GET", "HEAD") and "inDevelopment" not in req.__dict__:
            req.inDevelopment = True
            if req.method == "GET" and req.path == _EVENTS_PATH:
                return hub.connect(res)
            if req.path == _SCRIPT_PATH:
                res.header({"Content-Type": "text/javascript", "Cache-Control": "no-cache"})
                return res.send(SCRIPT)
            _prepare(hub, req, res)
        return next()

    return serve


def _prepare(hub: LiveReloadHub, req: Any, res: Any) -> None:
    destination = req.get("sec-fetch-dest")
    isPage = destination in _DOCUMENTS or (
        destination is None and req.get("x-requested-with") is None
    )
    if isPage and "html" in (req.get("accept") or ""):
        # A page in the browser's cache may lack the script.
        for name in _CONDITIONS:
            req.raw.headers.pop(name, None)
    # The current version: this response does not include later changes.
    res.beforeHead(partial(_changeHead, res, hub.version if isPage else None))
    send = res.sendFile

    def sendFile(path: Any, root: Any = None, **options: Any) -> Any:
        hub.noteFile(path, root)
        return send(path, root, **options)

    res.sendFile = sendFile


def _changeHead(res: Any, version: str | None) -> None:
    """Change a head before it is sent, and arrange for the script in the body."""
    contentType = res.get("Content-Type")
    if not isinstance(contentType, str):
        return
    parsed = parseContentType(contentType)
    caching = res.get("Cache-Control")
    if parsed.type in _UNCACHED and caching is not None and "no-store" not in caching:
        res.header("Cache-Control", "no-cache")
    isPlain = (res.get("Content-Encoding") or "identity") == "identity"
    isWhole = res.statusCode not in (204, 205, 206, 304)
    # The tag is ASCII, so the page's encoding has to contain it.
    isReadable = not (parsed.charset or "").lower().startswith(("utf-16", "utf-32"))
    if version is not None and parsed.type in _HTML and isPlain and isWhole and isReadable:
        res.remove("ETag").remove("Last-Modified").remove("Accept-Ranges")
        tag = f'<script src="{_SCRIPT_PATH}?v={version}"></script>'.encode("ascii")
        # Encoders run in the reverse order of their registration.
        res.encodeBody(lambda length: TagInserter(tag))


@implementer(IBodyEncoder)
class TagInserter:
    """
    Inserts a tag before C{</body>}, or at the end of a page without it.

    The methods may be called in any thread, one at a time.
    """

    flushes = False

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._held = b""
        self._isDone = False

    def feed(self, chunk: bytes) -> bytes:
        """Return a chunk, holding back trailing bytes that may begin C{</body>}."""
        if self._isDone:
            return chunk
        page, self._held = self._held + chunk, b""
        mark = _BODY_END.search(page)
        if mark is not None:
            self._isDone = True
            return page[: mark.start()] + self._tag + page[mark.start() :]
        cut = _CUT_END.search(page, max(0, len(page) - len(b"</body")))
        if cut is not None:
            self._held = cut[0]
            return page[: cut.start()]
        return page

    def flush(self) -> bytes:
        """Return the held bytes; a C{</body>} that is split here is not found."""
        held, self._held = self._held, b""
        return held

    def finish(self) -> bytes:
        """Return the held bytes, and the tag if it was not inserted yet."""
        if self._isDone:
            return b""
        self._isDone = True
        return self.flush() + self._tag


def staticRoots(app: LayerList) -> frozenset[str]:
    """
    Return the directories that an application and its routers serve with C{staticFiles}.

    @param app: An application or router, including the routers mounted in it.
    """
    roots: set[str] = set()
    for layer in app.allLayers():
        for function in layer.functions():
            options = function.args[:1] if isinstance(function, partial) else ()
            roots |= {os.fsdecode(each.root) for each in options if isinstance(each, StaticOptions)}
    return frozenset(roots)


# The script listens only while its page is visible: a browser opens six connections to a server,
# and a dozen background pages would leave none. A page that is shown again reconnects. Styles are
# set as properties, since a content security policy may forbid style elements and attributes.
SCRIPT = """\
(function () {
  "use strict";
  if (window.storagegateHmr) return;
  window.storagegateHmr = true;
  var script = document.currentScript;
  var version = script && new URL(script.src).searchParams.get("v");
  var source = null, overlay = null, timer = null, failures = 0;

  function hide() {
    if (overlay) overlay.remove();
    overlay = null;
  }

  function add(parent, text, css) {
    var element = document.createElement("div");
    Object.assign(element.style, {whiteSpace: "pre-wrap"}, css);
    element.textContent = text;
    parent.appendChild(element);
    return element;
  }

  function show(report) {
    hide();
    overlay = add(document.documentElement, "", {
      position: "fixed", inset: "0", zIndex: "2147483647", overflow: "auto", padding: "2em",
      background: "rgba(20, 20, 24, 0.95)", color: "#ddd", font: "14px/1.5 monospace",
      textAlign: "left"
    });
    add(overlay, report.title, {color: "#ff6b6b", fontSize: "18px", fontWeight: "bold"});
    var line = report.line ? ":" + report.line : "";
    if (report.file) add(overlay, report.file + line, {color: "#7cc7ff"});
    add(overlay, report.text, {margin: "1em 0"});
    add(overlay, "The old code goes on serving. Escape hides this.", {color: "#888"});
  }

  function close() {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  }

  function reload() {
    close();
    location.reload();
  }

  function open() {
    close();
    if (document.hidden) return;
    source = new EventSource("EVENTS_PATH");
    source.addEventListener("hello", function (event) {
      var current = JSON.parse(event.data).version;
      failures = 0;
      if (version && version !== current) reload();
      version = current;
    });
    source.addEventListener("reload", reload);
    source.addEventListener("error", function (event) {
      if (event.data !== undefined) {
        show(JSON.parse(event.data));
      } else if (source && source.readyState === EventSource.CLOSED && ++failures < 30) {
        timer = setTimeout(open, 1000);
      }
    });
  }

  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") hide();
  });
  document.addEventListener("visibilitychange", open);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", function (event) {
    if (event.persisted) open();
  });
  open();
})();
""".replace("EVENTS_PATH", _EVENTS_PATH)
"""The script of pages; its URL contains the version of the code that made the page."""
