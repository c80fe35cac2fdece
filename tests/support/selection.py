"""
The parts of the suite, and the choice of the parts to run.

C{STORAGEGATE_TESTS} names the choice:

  - C{short}, the default, is the part that the README's command runs. Each of its tests takes less
    than two seconds and only needs packages that pip installs.
  - C{long} are tests that take longer, wait, or need an external program.
  - C{all} is both, as in CI.
  - C{soak} is C{all} plus the tests that take minutes or write gigabytes, with the full number of
    rounds. It takes hours.

L{long} puts a test, or a class of tests, into the long part; L{soak} puts it into the soak.
L{rounds} selects a number according to the choice.
"""

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.trial.runner import TestLoader

from tests.support.programs import noteWanted

VARIABLE = "STORAGEGATE_TESTS"

_INHERITED = "TESTS_CHOICE"

CHOICES = ("short", "long", "all", "soak")

# The daemon and its commands take each variable that begins with STORAGEGATE_ as a configuration
# key, so the processes of the run inherit the choice under another name.
CHOICE = os.environ.pop(VARIABLE, None) or os.environ.get(_INHERITED, "short")
os.environ[_INHERITED] = CHOICE

_PARTS = {
    "short": frozenset({"short"}),
    "long": frozenset({"long"}),
    "all": frozenset({"short", "long"}),
    "soak": frozenset({"short", "long", "soak"}),
}

T = TypeVar("T")

if CHOICE not in CHOICES:
    raise SystemExit(f"{VARIABLE} is {CHOICE!r}; it may be {', '.join(CHOICES)}")


def _mark(part: str) -> Callable[[T], T]:
    def mark(test: T) -> T:
        test.part = part  # type: ignore[attr-defined]
        return test

    return mark


def long(reason: str) -> Callable[[T], T]:
    """
    Put a test or a class of tests, with its subclasses, into the long part.

    @param reason: Why it takes long, or the program that it needs.
    """
    assert reason
    return _mark("long")


def soak(reason: str) -> Callable[[T], T]:
    """
    Put a test or a class of tests into the soak.

    @param reason: Why it takes minutes or writes gigabytes.
    """
    assert reason
    return _mark("soak")


def rounds(short: T, full: T, soak: T | None = None) -> T:
    """
    Return a number of rounds, examples or seconds, or a set of cases, for the part that runs.

    @param short: The number for the short part.
    @param full: The number for the long part.
    @param soak: The number for a soak; the default is C{full}.
    """
    if CHOICE == "short":
        return short
    return full if CHOICE != "soak" or soak is None else soak


def partOf(case: type[Any], method: str) -> str:
    """
    Return the part that a test belongs to: its own mark, or the mark of its class.

    @param case: A class of tests.
    @param method: The name of one of its methods.
    """
    found = getattr(getattr(case, method), "part", None) or getattr(case, "part", "short")
    assert isinstance(found, str)
    return found


_leftOut = {"short": 0, "long": 0, "soak": 0}


def selecting(names: Callable[[TestLoader, type[Any]], list[str]]) -> Callable[..., list[str]]:
    """
    Wrap C{TestLoader.getTestCaseNames} so that it returns the tests of the chosen parts.

    @param names: The method of trial, which returns names without the prefix.
    """

    def selected(loader: TestLoader, case: type[Any]) -> list[str]:
        chosen = []
        for name in names(loader, case):
            part = partOf(case, loader.methodPrefix + name)
            if part in _PARTS[CHOICE]:
                chosen.append(name)
                noteWanted(getattr(case, loader.methodPrefix + name))
            else:
                _leftOut[part] += 1
        return chosen

    return selected


def _report() -> None:
    for part, count in _leftOut.items():
        if count and part != "soak":
            print(f"{count} {part} tests were left out: {VARIABLE}=all runs them", file=sys.stderr)


atexit.register(_report)
