"""What goes wrong between a client and the HTTP channel."""


class BadRequest(Exception):
    """
    The client broke the protocol: it gets one answer and the connection is closed.

    @ivar code: The status of the answer.
    @ivar text: One line that says what was wrong, without repeating what the client sent.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class BodyTooLarge(Exception):
    """
    The body is longer than its reader takes.

    @ivar limit: How many bytes the reader takes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is over {limit} bytes")
        self.limit = limit


class BodyLost(Exception):
    """The client went away in the middle of its body."""


class IncompleteBody(BodyLost):
    """The body ended before its end or broke its framing. The client has had its answer."""


class ClientLost(Exception):
    """The client went away in the middle of its response."""
