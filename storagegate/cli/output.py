"""
The output of commands: one JSON object, or lines and tables for a person.

Colours are used only on a terminal, and not if the variable C{NO_COLOR} is set. Progress is shown
on standard error, only if it is a terminal. Text from other sources, such as names of objects, is
escaped before it is printed, because it may contain terminal control sequences.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any, TextIO

from attrs import frozen

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}

_BAR_WIDTH = 30

_PROGRESS_SECONDS = 0.1
"""The shortest interval between redraws of the bar."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@frozen
class Cell:
    """
    A cell of a table.

    @ivar colour: The name of a colour; empty for none.
    """

    text: str
    colour: str = ""


class CommandOutput:
    """
    The output of one command.

    @ivar isJSON: Whether to print one JSON object instead of lines.
    """

    def __init__(self, isJSON: bool, environment: Mapping[str, str] = os.environ) -> None:
        """@param environment: The environment variables of the process."""
        self.isJSON = isJSON
        self._environment = environment
        self._lines: list[str] = []

    @property
    def hasColours(self) -> bool:
        """Whether colours are used."""
        named = self._environment.get("NO_COLOR") or self._environment.get("TERM") == "dumb"
        return sys.stdout.isatty() and not named

    def paint(self, text: str, colour: str) -> str:
        """Return a text with colour codes, if colours are used."""
        if not colour or not self.hasColours:
            return text
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"

    def line(self, text: str, colour: str = "") -> None:
        """Print a line at once; in JSON mode, add it to C{lines} of the object."""
        if self.isJSON:
            self._lines.append(text)
        else:
            print(self.paint(escape(text), colour), flush=True)

    def record(self, document: Mapping[str, Any], text: str) -> None:
        """Print a record of a stream: an object in one line, or a text."""
        print(json.dumps(document) if self.isJSON else text, flush=True)

    def note(self, text: str) -> None:
        """Print a line that is not part of the result, on standard error."""
        print(escape(text), file=sys.stderr, flush=True)

    def result(self, document: Mapping[str, Any], lines: Iterable[str] = ()) -> None:
        """
        Print the result.

        @param document: The JSON object, to which lines printed before are added.
        @param lines: The lines for a person, already escaped and coloured.
        """
        if not self.isJSON:
            for text in lines:
                print(text)
        else:
            print(json.dumps({**document, **({"lines": self._lines} if self._lines else {})}))

    def table(
        self, headings: Sequence[str], rows: Iterable[Sequence["str | Cell"]]
    ) -> Iterator[str]:
        """Return the lines of a table; its cells are escaped here."""
        cells = [[_cell(each) for each in row] for row in rows]
        widths = [
            max([len(heading), *(len(row[number].text) for row in cells)])
            for number, heading in enumerate(headings)
        ]
        yield self.paint(_join(headings, widths), "bold")
        for row in cells:
            padded = [each.text.ljust(width) for each, width in zip(row, widths, strict=True)]
            padded[-1] = padded[-1].rstrip()
            painted = (
                self.paint(text, each.colour) for text, each in zip(padded, row, strict=True)
            )
            yield "  ".join(painted).rstrip()

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Redirect standard output within the context to C{lines} of the object, in JSON mode."""
        if not self.isJSON:
            yield
            return
        text = StringIO()
        try:
            with redirect_stdout(text):
                yield
        finally:
            self._lines += text.getvalue().splitlines()

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """
        Show the progress of a command.

        @param title: One or two words.
        @return: A function of the amount done and the total amount.
        """
        bar = _Bar(title, sys.stderr)
        try:
            yield bar.show
        finally:
            bar.clear()


class _Bar:
    """A progress bar; draws nothing without a terminal."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title
        self._stream = stream
        self._isShown = stream.isatty()
        self._drawn = 0.0
        self._width = 0

    def show(self, done: int, total: int) -> None:
        """Draw the bar, unless it was drawn just now."""
        now = time.monotonic()
        if not self._isShown or now - self._drawn < _PROGRESS_SECONDS:
            return
        self._drawn = now
        part = min(done / total, 1.0) if total else 1.0
        filled = round(part * _BAR_WIDTH)
        bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
        text = f"{self._title} [{bar}] {part:4.0%} {done}/{total}"
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Erase the bar."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


def isAsking() -> bool:
    """Return whether questions can be asked: input and standard error are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, default: str) -> str:
    """Ask on the terminal; return the default for an empty answer."""
    sys.stderr.write(f"{question} [{default}]: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() or default


def formatTime(ms: int) -> str:
    """Format a time in UTC; a hyphen for none."""
    if not ms:
        return "-"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))


def formatBytes(size: int) -> str:
    """Format a size with its unit."""
    value, number = float(size), 0
    while value >= 1024 and number < len(_UNITS) - 1:
        value, number = value / 1024, number + 1
    return f"{size} B" if number == 0 else f"{value:.1f} {_UNITS[number]}"


def _cell(cell: "str | Cell") -> Cell:
    found = Cell(cell) if isinstance(cell, str) else cell
    return Cell(escape(found.text), found.colour)


def _join(texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
    return "  ".join(padded).rstrip()


def escape(text: str) -> str:
    """Escape unprintable characters, including those that change the text direction."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "replace").decode("ascii")
        for each in text
    )
