"""
The middleware that lets pages take part in development.

The open pages, and what they are told.

The script of pages in development.

Puts a tag into an HTML page that passes by in pieces.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from secrets import token_hex
from typing import Any

from zope.interface import implementer

from storagegate.http.contenttypes import parseContentType
from storagegate.http.encoding import IBodyEncoder
from storagegate.net.http.interfaces import ClientLost

# One is a page that somebody looks at.
_MAX_STREAMS = 100

# What is watched because a page was made of it.
_MAX_FILES = 1000

PAGE_SUFFIXES = (".css", ".htm", ".html", ".js", ".mjs", ".svg", ".xhtml")
"""What a page is made of: a change of such a file reloads pages, where it is served."""


class LiveReloadHub:
    """
    Tells open pages, by server-sent events, what has happened::

        hello   {"version"}                       first on each stream
        error   {"title", "file", "line", "text"} something does not load; repeated to new streams
        reload  {"version", "files"}              something has changed

    @ivar files: Files that were sent and may be parts of pages.
    @ivar fileNoted: Called when there is another one, before it is sent.
    """

    def __init__(self) -> None:
        # Another process has another one, so that pages see that the server was restarted.
        self._process = token_hex(4)
        self._count = 0
        self._error: Mapping[str, Any] | None = None
        self._streams: dict[Any, None] = {}
        self.files: dict[str, None] = {}
        self.fileNoted: Callable[[], object] | None = None

    @property
    def version(self) -> str:
        """Give the version of the code and the files that pages are made by now."""
        return f"{self._process}.{self._count}"

    def connect(self, res: Any) -> None:
        """Begin a stream of events; it ends when the page goes away, or by L{endAll}."""
        if len(self._streams) >= _MAX_STREAMS:
            res.status(503).header("Retry-After", "5").send("There are too many open pages")
            return
        res.header({"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        res.startBody(None)
        self._streams[res] = None
        res.on("close", lambda: self._streams.pop(res, None))
        # How soon a page tries again when the server was stopped.
        self._send(res, "retry: 500\n\n" + _event("hello", {"version": self.version}))
        if self._error is not None:
            self._send(res, _event("error", self._error))

    def noteFile(self, path: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> None:
        """Remember a file that is being sent."""
        name = os.path.abspath(os.path.join(os.fspath(root or ""), os.fspath(path)))
        if name.endswith(PAGE_SUFFIXES) and len(self.files) < _MAX_FILES:
            isNew = name not in self.files
            self.files[name] = None
            if isNew and self.fileNoted is not None:
                self.fileNoted()

    def reload(self, files: list[str], isRepaired: bool) -> None:
        """
        Reload all pages, those too that are not connected now.

        @param isRepaired: Whether there is no error to be shown any more.
        """
        self._count += 1
        if isRepaired:
            self._error = None
        self._broadcast(_event("reload", {"version": self.version, "files": files}))

    def fail(self, report: Mapping[str, Any]) -> None:
        """Show an error in all pages."""
        self._error = report
        self._broadcast(_event("error", report))

    def beat(self) -> None:
        """Say something, so that nobody on the way takes the connections for dead."""
        self._broadcast(":\n\n")

    def endAll(self) -> None:
        """End all streams; pages will try to connect again."""
        for res in list(self._streams):
            del self._streams[res]
            res.end()

    def _broadcast(self, text: str) -> None:
        for res in list(self._streams):
            self._send(res, text)

    def _send(self, res: Any, text: str) -> None:
        try:
            isBehind = res.lean.send(text.encode("utf-8")) is not None
        except ClientLost:
            return
        if isBehind:
            # It reads nothing: nothing is kept for it. It may connect again.
            res.lean.abort()


def _event(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


PREFIX = "/__storagegate/"
EVENTS_PATH = PREFIX + "hmr"
SCRIPT_PATH = PREFIX + "hmr.js"

# Listens while its page is seen: a browser has six connections to a server, and a dozen pages that
# are open in the background would leave none. A page that comes back learns the version that it has
# missed. All styles are set by properties: a content policy may forbid the others.
SCRIPT = (
    """\
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

  function add(parent, text, style) {
    var element = document.createElement(style.whiteSpace ? "pre" : "div");
    for (var name in style) element.style[name] = style[name];
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
    if (report.file) {
      add(overlay, report.file + (report.line ? ":" + report.line : ""), {color: "#7cc7ff"});
    }
    add(overlay, report.text, {whiteSpace: "pre-wrap", margin: "1em 0"});
    add(overlay, "The old code goes on serving. Escape hides this.", {color: "#888"});
  }

  function reload() {
    close();
    location.reload();
  }

  function close() {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  }

  function open() {
    close();
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

  function look() {
    if (document.hidden) close(); else open();
  }

  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") hide();
  });
  document.addEventListener("visibilitychange", look);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", function (event) {
    if (event.persisted) look();
  });
  look();
})();
"""
).replace("EVENTS_PATH", EVENTS_PATH)
"""The script itself; its address has the version of the code that has made the page."""


_END = b"</body"
_BODY_END = re.compile(_END + rb"[\s>]", re.IGNORECASE)


@implementer(IBodyEncoder)
class TagInserter:
    """
    Inserts a tag before the end of the body, or at the end where that is not marked.

    Its methods may be called in any thread, one at a time.
    """

    flushes = False

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._held = b""
        self._isDone = False

    def feed(self, chunk: bytes) -> bytes:
        """Pass a piece on, without what may be the first half of the mark."""
        if self._isDone:
            return chunk
        page, self._held = self._held + chunk, b""
        mark = _BODY_END.search(page)
        if mark is not None:
            self._isDone = True
            return page[: mark.start()] + self._tag + page[mark.start() :]
        for length in range(min(len(_END), len(page)), 0, -1):
            if _END.startswith(page[-length:].lower()):
                self._held = page[-length:]
                return page[:-length]
        return page

    def flush(self) -> bytes:
        """Give what is held; a mark that is cut just here is not found."""
        held, self._held = self._held, b""
        return held

    def finish(self) -> bytes:
        """Give what is held, and the tag if it is not in the page yet."""
        if self._isDone:
            return b""
        self._isDone = True
        return self.flush() + self._tag


_HTML = ("text/html", "application/xhtml+xml")

# What changes while pages are open must not come from a cache when they are reloaded.
_UNCACHED = (*_HTML, "text/css", "text/javascript", "application/javascript", "image/svg+xml")

# What browsers say they want a page for; parts that scripts ask for are no pages.
_PAGES = ("document", "iframe", "frame")

_CONDITIONS = (b"if-none-match", b"if-modified-since")


def developmentPages(hub: LiveReloadHub) -> Callable[[Any, Any, Any], Any]:
    """
    Make the middleware: it serves the script of pages and its events, and puts the script into
    every HTML page.

    It comes first. What it does to a body is done before all others, so that it can be compressed.
    """

    def serve(req: Any, res: Any, next: Any) -> Any:
        if req.method not in ("GET", "HEAD") or "inDevelopment" in req.__dict__:
            return next()
        # An application may be mounted in another.
        req.inDevelopment = True
        if req.lean.path.startswith(PREFIX.encode("ascii")):
            if req.method == "GET" and req.path == EVENTS_PATH:
                return hub.connect(res)
            if req.path == SCRIPT_PATH:
                return _sendScript(res)
        _prepare(hub, req, res)
        return next()

    return serve


def _sendScript(res: Any) -> None:
    res.header({"Content-Type": "text/javascript", "Cache-Control": "no-cache"}).send(SCRIPT)


def _prepare(hub: LiveReloadHub, req: Any, res: Any) -> None:
    """Get ready to change the response."""
    wanted = req.get("sec-fetch-dest")
    isPage = wanted in _PAGES or (wanted is None and req.get("x-requested-with") is None)
    if isPage and "html" in (req.get("accept") or ""):
        # A page that the browser has kept from another time has no script in it.
        for name in _CONDITIONS:
            req.lean.headers.pop(name, None)
    # The version of now: code that is loaded from now on has no part in this answer.
    res.beforeHead(partial(_change, res, hub.version if isPage else None))
    send = res.sendFile

    def sendFile(path: Any, root: Any = None, **options: Any) -> Any:
        hub.noteFile(path, root)
        return send(path, root, **options)

    res.sendFile = sendFile


def _change(res: Any, version: str | None) -> None:
    """
    Change a head that is about to be sent, and let the body be changed.

    @param version: What the page is made by; L{None} if the answer is no page.
    """
    contentType = res.get("Content-Type")
    if not isinstance(contentType, str):
        return
    parsed = parseContentType(contentType)
    caching = res.get("Cache-Control")
    if parsed.type in _UNCACHED and caching is not None and "no-store" not in caching:
        res.header("Cache-Control", "no-cache")
    isPlain = (res.get("Content-Encoding") or "identity") == "identity"
    isWhole = res.statusCode not in (204, 205, 206, 304)
    # The tag is ASCII, and so must be whatever the page is written in.
    isReadable = not (parsed.charset or "").lower().startswith(("utf-16", "utf-32"))
    isPage = version is not None and parsed.type in _HTML
    if isPage and isPlain and isWhole and isReadable:
        res.remove("ETag").remove("Last-Modified").remove("Accept-Ranges")
        tag = f'<script src="{SCRIPT_PATH}?v={version}"></script>'.encode("ascii")
        # Added now, it is asked first.
        res.encodeBody(lambda length: TagInserter(tag))
