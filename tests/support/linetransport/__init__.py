"""
A transport of a user's own: the messages of WebSocket by the line, on a UNIX socket.

All that it takes is this folder, the row below and the modules that the row names, and a plugin in
C{twisted/plugins} that imports the row.
"""

from attrs import field, frozen

from storagegate.core.options import readSize
from storagegate.gateway.transports.registry import Transport

NAME = "line"


@frozen(kw_only=True)
class LineOptions:
    """
    How services are called by the line.

    @ivar address: The description of an endpoint.
    @ivar maxLineBytes: Bytes of a line.
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
