"""What goes wrong with a source."""


class SourceError(Exception):
    """A source cannot be asked, or talks nonsense; the text says what, for a line of a log."""


class Refused(SourceError):
    """
    A source has answered, and not with what was asked for.

    @ivar status: What with.
    """

    def __init__(self, place: str, status: int, reason: str = "") -> None:
        super().__init__(f"{place} answers with {status}{reason and ': '}{reason[:200]}")
        self.status = status
