"""The open pages, and what they are told."""

import json
import os
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any

from storagegate.net.httperrors import ClientLost

# One is a page that somebody looks at.
_MAX_STREAMS = 100

# What is watched because a page was made of it.
_MAX_FILES = 1000

PAGE_SUFFIXES = (".css", ".htm", ".html", ".js", ".mjs", ".svg", ".xhtml")
"""What a page is made of: a change of such a file reloads pages, where it is served."""


class PageHub:
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
