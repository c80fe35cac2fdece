"""The state of files, to find what has changed."""

import os
from collections.abc import Iterator, Mapping

from attrs import field, frozen

from storagegate.http.development.pagehub import PAGE_SUFFIXES

# Directories of tools, and what they install.
_PASSED_OVER = ("node_modules", "__pycache__")

_MAX_FILES = 10_000
"""Of trees: looking at so many takes a thread 30 ms."""

State = tuple[int, int, int]
"""When a file was changed, its length, and which it is: editors write another and rename it."""


@frozen
class Watched:
    """
    What is looked at.

    @ivar files: Files.
    @ivar sources: Directories whose Python files are looked at.
    @ivar trees: Directories below which that is looked at what pages are made of.
    """

    files: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()


@frozen
class Snapshot:
    """
    What was there at a time.

    @ivar states: By file.
    @ivar directories: Where files may come and go.
    """

    watched: Watched
    states: Mapping[str, State] = field(repr=False)
    directories: frozenset[str] = field(repr=False)


def takeSnapshot(watched: Watched) -> Snapshot:
    """Look at files. May be called in a thread."""
    states: dict[str, State] = {}
    directories = {os.path.dirname(path) for path in watched.files} | watched.sources
    for path in watched.files:
        _look(path, states)
    for directory in watched.sources:
        for path in _listed(directory):
            if path.endswith(".py"):
                _look(path, states)
    for tree in watched.trees:
        for directory, paths in _walked(tree):
            directories.add(directory)
            for path in paths:
                _look(path, states)
            if len(states) > _MAX_FILES:
                break
    return Snapshot(watched, states, frozenset(directories))


def changesBetween(before: Snapshot, after: Snapshot) -> set[str]:
    """Give the files that are different, gone, or new where one would have been seen before."""
    changed = {path for path, state in before.states.items() if after.states.get(path) != state}
    # What is not looked at any more has not gone.
    changed = {path for path in changed if path in after.states or not os.path.exists(path)}
    return changed | {
        path for path in after.states if path not in before.states and _saw(before, path)
    }


def widened(known: Snapshot, more: Snapshot) -> Snapshot:
    """Add to a snapshot what another one has looked at, and it has not."""
    added = {path: state for path, state in more.states.items() if not _saw(known, path)}
    one, other = known.watched, more.watched
    watched = Watched(one.files | other.files, one.sources | other.sources, one.trees | other.trees)
    return Snapshot(watched, {**added, **known.states}, known.directories | more.directories)


def _saw(before: Snapshot, path: str) -> bool:
    """Say whether a file would be in a snapshot if it had been there."""
    watched = before.watched
    if path in watched.files:
        return True
    if path.endswith(".py"):
        return os.path.dirname(path) in watched.sources
    return any(path.startswith(tree.rstrip(os.sep) + os.sep) for tree in watched.trees)


def _look(path: str, states: dict[str, State]) -> None:
    try:
        status = os.stat(path)
    except OSError:
        return
    states[path] = (status.st_mtime_ns, status.st_size, status.st_ino)


def _listed(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except OSError:
        return []


def _walked(tree: str) -> Iterator[tuple[str, list[str]]]:
    for directory, children, names in os.walk(tree):
        children[:] = [
            each for each in children if each not in _PASSED_OVER and not each.startswith(".")
        ]
        yield (
            directory,
            [os.path.join(directory, name) for name in names if name.endswith(PAGE_SUFFIXES)],
        )
