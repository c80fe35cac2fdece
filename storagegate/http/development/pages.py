"""The middleware that lets pages take part in development."""

from collections.abc import Callable
from functools import partial
from typing import Any

from storagegate.http.contenttypes import parseContentType
from storagegate.http.development.pagehub import PageHub
from storagegate.http.development.pagescript import EVENTS_PATH, PREFIX, SCRIPT, SCRIPT_PATH
from storagegate.http.development.taginserter import TagInserter

_HTML = ("text/html", "application/xhtml+xml")

# What changes while pages are open must not come from a cache when they are reloaded.
_UNCACHED = (*_HTML, "text/css", "text/javascript", "application/javascript", "image/svg+xml")

# What browsers say they want a page for; parts that scripts ask for are no pages.
_PAGES = ("document", "iframe", "frame")

_CONDITIONS = (b"if-none-match", b"if-modified-since")


def developmentPages(hub: PageHub) -> Callable[[Any, Any, Any], Any]:
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


def _prepare(hub: PageHub, req: Any, res: Any) -> None:
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
