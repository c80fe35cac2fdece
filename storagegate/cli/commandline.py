"""
The parser of the command line, made from the table of L{commands<storagegate.cli.commands>}.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from storagegate.cli.commands import (
    COMMANDS,
    EXAMPLES,
    GROUPS,
    SECTIONS,
    Argument,
    Command,
    CommandPlace,
)
from storagegate.version import __version__


class _ScriptParser(argparse.ArgumentParser):
    """The parser of the script, whose help lists the commands by section."""

    def format_help(self) -> str:
        """Return the usage, and the commands with their meanings."""
        meanings = {command.path: command.meaning for command in COMMANDS} | GROUPS
        lines = [self.format_usage().rstrip(), ""]
        for title, names in SECTIONS.items():
            lines.append(f"{title}:")
            lines += [f"  {name:<12}{meanings[name]}" for name in names]
            lines.append("")
        lines.append("storagegate COMMAND --help prints the flags of a command and an example.")
        return "\n".join(lines) + "\n"


_DATA_FLAGS = (
    Argument(
        ("--data",),
        {
            "metavar": "DIR",
            "help": "the data directory; under systemd the default is $STATE_DIRECTORY",
        },
    ),
    Argument(
        ("--config",),
        {"metavar": "FILE", "help": "a TOML configuration file (or STORAGEGATE_CONFIG)"},
    ),
)

_URL_FLAGS = (
    Argument(
        ("--url",),
        {"metavar": "URL", "help": "the URL of a daemon's admin listener, to use its API"},
    ),
    Argument(
        ("--profile",),
        {"metavar": "NAME", "help": "a profile of profiles.toml or aws-cli with the key pair"},
    ),
    Argument(
        ("--cacert",), {"metavar": "FILE", "help": "trusted certificate authorities for --url, PEM"}
    ),
)

_JSON = Argument(
    ("--json",), {"action": "store_true", "help": "print one JSON object instead of lines"}
)
_JSON_STREAM = Argument(
    ("--json",), {"action": "store_true", "help": "print one JSON object on each line"}
)


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """
    Make the parser of the command line.

    @param words: The command line, which limits the arguments to the command that it names; L{None}
        adds the arguments of all commands.
    """
    script = _ScriptParser(prog="storagegate", allow_abbrev=False)
    _addVersion(script)
    script.set_defaults(command=None, json=False)
    if words is not None and list(words) == list(_JSON.names):
        # Before a command, the flag would be lost: each command has its own.
        script.add_argument(*_JSON.names, **_JSON.settings)
    first = script.add_subparsers(metavar="COMMAND", parser_class=argparse.ArgumentParser)
    groups: dict[str, Any] = {"": first}

    def actions(group: str) -> Any:
        """Return the subparsers of a group."""
        if group not in groups:
            outer, _, name = group.rpartition(" ")
            made = actions(outer).add_parser(name, help=GROUPS[group], allow_abbrev=False)
            groups[group] = made.add_subparsers(required=True, metavar="ACTION")
        return groups[group]

    for command in COMMANDS:
        group, _, name = command.path.rpartition(" ")
        added = actions(group).add_parser(
            name,
            help=command.meaning,
            description=command.meaning,
            epilog=f"example: storagegate {EXAMPLES[command.path]}",
            allow_abbrev=False,
        )
        if words is None or list(words[: len(command.path.split())]) == command.path.split():
            for argument in argumentsOf(command):
                added.add_argument(*argument.names, **argument.settings)
            if command.path == "serve":
                _addVersion(added)
            added.set_defaults(command=command)
    return script


def argumentsOf(command: Command) -> Iterator[Argument]:
    """Yield all arguments of a command: its own, and the flags of its place."""
    if command.place is CommandPlace.DAEMON:
        yield from _daemonFlags()
    if command.place in (CommandPlace.DATA, CommandPlace.EITHER):
        yield from _DATA_FLAGS
    if command.place is CommandPlace.EITHER or command.path == "doctor":
        yield from _URL_FLAGS
    yield from command.arguments
    if command.path == "run":
        yield from _addressFlags()
    if command.path not in ("serve", "run"):
        yield _JSON_STREAM if command.isStream else _JSON


def _addVersion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"storagegate {__version__}")


def _addressFlags() -> Iterator[Argument]:
    """Yield the flags for the addresses of the listeners of a program."""
    from storagegate.gateway.transports.registry import listenerTransports

    forms = {
        "endpoint": "a port, HOST:PORT, unix:PATH or an endpoint string",
        "hostport": "a port or HOST:PORT",
    }
    for row in listenerTransports():
        text = f"the address of the {row.title} listener: {forms[str(row.address)]}"
        yield Argument((f"--{row.name}",), {"metavar": "ADDRESS", "help": text})


def _daemonFlags() -> Iterator[Argument]:
    """Yield the flags of the daemon; the configuration keys parse the values and report errors."""
    from storagegate.daemon.configkeys import KEYS

    yield _DATA_FLAGS[1]
    for key in KEYS:
        if key.argument:
            yield Argument(
                (f"--{key.name}",),
                {
                    "metavar": key.argument,
                    "action": "append" if key.name == "service" else "store",
                    "help": key.meaning,
                },
            )
