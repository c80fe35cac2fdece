"""
Print the picture of the daemon, C{docs/wires.svg}: ports and transports are those of the code.

Usage: C{python tools/wires.py > docs/wires.svg}.
"""

import re
import sys
from xml.sax.saxutils import escape

from storagegate.daemon.configkeys import KEYS
from storagegate.gateway.transports.registry import Transport, findTransport, transports

WIDTH, HEIGHT = 920, 412
ROW = 44
"""From one line of clients to the next."""

CLIENTS = {
    "http": "curl, browsers, any HTTP client",
    "websocket": "browsers, any WebSocket client",
    "grpc": "grpcurl, stubs of any language",
    "tcp": "nc, lines or binary frames",
    "udp": "datagrams, acknowledged",
}

_STYLE = """\
text { font: 14px sans-serif; fill: #1b2a3a }
.title { font-weight: bold; font-size: 16px }
.small { font-size: 12px; fill: #4a5b6c }
.code { font-family: monospace; font-size: 12px }
rect { fill: #ffffff; stroke: #4a6fa5; stroke-width: 1.5; rx: 6px }
rect.process { fill: #eef3f9; stroke: #1b2a3a }
rect.page { fill: #ffffff; stroke: none }
line { stroke: #4a6fa5; stroke-width: 1.5; marker-end: url(#arrow) }
path { fill: #4a6fa5 }
"""


def text(x: int, y: int, words: str, kind: str = "", anchor: str = "start") -> str:
    """Write a line of text."""
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: int, y: int, width: int, height: int, kind: str = "") -> str:
    """Draw a box."""
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"/>'


def arrow(x: int, y: int, toX: int, toY: int) -> str:
    """Draw an arrow."""
    return f'<line x1="{x}" y1="{y}" x2="{toX}" y2="{toY}"/>'


def port(address: str) -> str:
    """Return the port of an endpoint's description or of C{HOST:PORT}."""
    found = re.search(r":(\d+)", address)
    assert found is not None, address
    return found[1]


def portOf(row: Transport) -> str:
    """Return the port on which the daemon has a transport."""
    return port((findTransport(row.shares) if row.shares else row).default)


def picture() -> str:
    """Draw it all."""
    s3 = next(port(key.default) for key in KEYS if key.name == "s3")
    lines = [
        box(0, 0, WIDTH, HEIGHT, "page"),
        box(330, 16, 574, HEIGHT - 32, "process"),
        text(346, 40, "storagegate, one process on Twisted", "title"),
        box(346, 60, 170, 60),
        text(360, 86, f"S3 on {s3}"),
        text(360, 106, "signatures, access", "small"),
        arrow(516, 90, 598, 90),
        box(602, 60, 286, 60),
        text(616, 86, "object store"),
        text(616, 106, "catalog.sqlite and blobs/, synced to disk", "small"),
        text(16, 86, "boto3, aws-cli, rclone, restic, s3cmd"),
        text(16, 106, "unchanged, with their defaults", "small"),
        arrow(290, 90, 342, 90),
    ]
    first = 164
    rows = transports()
    last = first + ROW * (len(rows) - 1)
    for index, row in enumerate(rows):
        y = first + ROW * index
        lines += [
            text(16, y + 5, CLIENTS[row.name]),
            arrow(290, y, 342, y),
            box(346, y - 16, 170, 32),
            text(360, y + 5, f"{row.title} on {portOf(row)}"),
            arrow(516, y, 598, y),
        ]
    lines += [
        box(602, first - 16, 116, last - first + 32),
        *(
            text(660, first + 40 + 26 * index, word, "", "middle")
            for index, word in enumerate(("limit", "authenticate", "validate", "run", "measure"))
        ),
        arrow(718, (first + last) // 2, 752, (first + last) // 2),
        box(756, first - 16, 132, last - first + 32),
        text(822, (first + last) // 2 - 10, "your function", "", "middle"),
        text(822, (first + last) // 2 + 12, "async def greet(", "code", "middle"),
        text(822, (first + last) // 2 + 30, "request, context)", "code", "middle"),
        text(
            888,
            last + 40,
            "the same errors, deadlines and streams on every transport",
            "small",
            "end",
        ),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            "<title>storagegate: an S3 store, and one function over five transports</title>",
            f"<style>\n{_STYLE}</style>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"'
            ' markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>',
            *lines,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(picture())
