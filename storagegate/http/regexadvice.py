"""Finds regular expressions that can take exponential time, if it is plain to see."""

import re

# What one character or class is in what follows; what a group with a repetition inside is.
_ONE, _MANY = "x", "x+"

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?[^\]]*\]")
_GROUP = re.compile(r"\((?:\?(?:[a-z-]*:|P?<\w+>|<?[=!]|>))?([^()]*)\)")
_UNBOUNDED = re.compile(r"[*+]\??(?!\+)|\{[0-9]*,\}\??(?!\+)")
_ATOM = re.compile(r"[^*+?{}|](?:([*+]|\{[0-9]*,\})|\?|\{[0-9,]*\})(?![+])\??")


def nestsQuantifiers(source: str) -> bool:
    """
    Tell whether something that repeats without bounds is all that a repeated group holds.

    C{(a+)+} can share out the same text in a number of ways that doubles with each character, and
    tries them all before it fails.
    """
    text = _CLASS.sub(_ONE, _ESCAPE.sub(_ONE, source))
    while True:
        match = _GROUP.search(text)
        if match is None:
            return False
        repeats = any(_onlyRepeats(branch) for branch in match.group(1).split("|"))
        if repeats and _UNBOUNDED.match(text, match.end()):
            return True
        quantified = text[match.end() : match.end() + 1] in ("*", "+", "?", "{")
        inner = _MANY if repeats and not quantified else _ONE
        text = text[: match.start()] + inner + text[match.end() :]


def _onlyRepeats(branch: str) -> bool:
    """Tell whether each part of a branch has a quantifier, and one of them no upper bound."""
    at, unbounded = 0, False
    while at < len(branch):
        match = _ATOM.match(branch, at)
        if match is None:
            return False
        unbounded = unbounded or match.group(1) is not None
        at = match.end()
    return unbounded
