"""
What is asked of the gRPC servers, and what is the right answer: the service of C{echo.proto}.

Every message is the same one, in requests and in answers.
"""

from collections.abc import Mapping

from attrs import frozen

COPIES = 1000
"""How many messages a stream has: enough that its beginning and end count for nothing."""

TEXT = b"hello, hello, hello!"
MESSAGE = b"\x0a%c%b\x10\xe8\x07" % (len(TEXT), TEXT)
"""A C{Note} with the text and the number of copies."""

FRAMED = b"\0" + len(MESSAGE).to_bytes(4, "big") + MESSAGE
"""The same as gRPC sends it: not compressed, after its length."""

SERVICE = "bench.Echo"
HELD_METHOD = "Chat"


@frozen
class Case:
    """
    One kind of call.

    @ivar connections: How many are in flight, all on one connection.
    @ivar sent: How many messages a call sends.
    @ivar answered: How many it is answered.
    @ivar held: How many streams are open meanwhile.
    """

    name: str
    method: str
    connections: tuple[int, ...]
    sent: int = 1
    answered: int = 1
    held: int = 0

    @property
    def path(self) -> str:
        """The method's whole name."""
        return f"/{SERVICE}/{self.method}"

    @property
    def posted(self) -> bytes:
        """What a call sends."""
        return FRAMED * self.sent

    @property
    def wanted(self) -> bytes:
        """What it is answered."""
        return FRAMED * self.answered


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case("unary", "Once", (1, 64)),
        Case("server", "Repeat", (4,), answered=COPIES),
        Case("bidi", "Chat", (4,), sent=COPIES, answered=COPIES),
        Case("open300", "Once", (64,), held=300),
    )
}
