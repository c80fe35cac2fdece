"""
A user-defined transport: WebSocket messages as lines on a UNIX socket.

It consists of this folder with the row below and its modules, and a plugin in C{twisted/plugins}
that imports the row.
"""

from attrs import field, frozen

from storagegate.core.options import readSize
from storagegate.gateway.transports.registry import Transport

NAME = "line"


@frozen(kw_only=True)
class LineOptions:
    """
    The options of the line transport.

    @ivar address: An endpoint description.
    @ivar maxLineBytes: Limit of a line in bytes.
    """

    address: str = "unix:line.sock"
    maxLineBytes: int = field(default=64 * 1024, converter=readSize)


LINE = Transport(
    name=NAME,
    title="lines",
    flag="enableLine",
    options="tests.support.linetransport:LineOptions",
    make="tests.support.linetransport.listener:LineTransport",
    address="endpoint",
    inherit="stream",
    providers=("apikey",),
    metrics="tests.support.linetransport.reports:METRICS",
    describe="tests.support.linetransport.reports:LineChannel",
    maxItemBytes=16 * 1024,
)
