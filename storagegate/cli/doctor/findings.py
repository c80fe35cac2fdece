"""What a check has found."""

from typing import Literal

from attrs import frozen

Level = Literal["ok", "warning", "problem"]


@frozen
class Finding:
    """
    One line for the operator.

    @ivar level: C{problem} where the daemon will not start, or will not do what it promises;
        C{warning} where it will, for now.
    @ivar check: Which check says so, in one word.
    @ivar text: What there is, and what to do where something is wrong.
    """

    level: Level
    check: str
    text: str


class Check:
    """Makes the findings of one check."""

    def __init__(self, name: str) -> None:
        self._name = name

    def ok(self, text: str) -> Finding:
        """Say that something is as it should be."""
        return Finding("ok", self._name, text)

    def warning(self, text: str) -> Finding:
        """Say what should be looked at."""
        return Finding("warning", self._name, text)

    def problem(self, text: str) -> Finding:
        """Say what is wrong."""
        return Finding("problem", self._name, text)
