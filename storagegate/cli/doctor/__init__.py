"""Checks of C{storagegate doctor}, and their findings."""

from typing import Literal

from attrs import frozen

Level = Literal["ok", "warning", "problem"]


@frozen
class Finding:
    """
    The result of a check in one line.

    @ivar level: C{problem} if the daemon will not start or not keep its promises; C{warning} if it
        will, for now.
    @ivar check: The name of the check, one word.
    @ivar text: The facts, and what to do about a problem.
    """

    level: Level
    check: str
    text: str


class Check:
    """Makes the findings of one check, which has a name of one word."""

    def __init__(self, name: str) -> None:
        """
        @param name: The word that begins each line of the check.
        """
        self._name = name

    def ok(self, text: str) -> Finding:
        """
        Make a finding without a problem.

        @param text: The state, in one line.
        """
        return Finding("ok", self._name, text)

    def warning(self, text: str) -> Finding:
        """
        Make a warning.

        @param text: The risk, in one line.
        """
        return Finding("warning", self._name, text)

    def problem(self, text: str) -> Finding:
        """
        Make a problem.

        @param text: The error, in one line, and its remedy if one is known.
        """
        return Finding("problem", self._name, text)
