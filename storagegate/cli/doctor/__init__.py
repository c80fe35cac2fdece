"""Checks of C{storagegate doctor}, and their findings."""

from functools import partial
from typing import Literal, get_args

from attrs import frozen

Level = Literal["ok", "warning", "problem"]


@frozen
class Finding:
    """
    The result of a check in one line.

    @ivar level: C{problem} if the daemon cannot start or keep its guarantees; C{warning} if it can,
        for now.
    @ivar check: The name of the check, one word.
    @ivar text: The facts, and the remedy for a problem.
    """

    level: Level
    check: str
    text: str


class Check:
    """Makes the findings of one check, one line each; see L{Finding}."""

    def __init__(self, name: str) -> None:
        """
        @param name: The word that begins each line of the check.
        """
        self.ok, self.warning, self.problem = (
            partial(Finding, level, name) for level in get_args(Level)
        )
