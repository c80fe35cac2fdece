"""
Print every command and flag, C{docs/commands.rst}, as the parser of the command line has them.

Usage: C{python tools/commands.py > docs/commands.rst}.
"""

import argparse
import sys
from collections.abc import Iterator

from storagegate.cli.main import parser

_INTRODUCTION = """\
Commands
========

.. Printed by tools/commands.py: change the parser that it reads, not this page.

``storagegate COMMAND [FLAG ...]``, or ``python -m storagegate COMMAND [FLAG ...]``; without a
command ``python -m storagegate`` is ``storagegate serve``. ``twistd storagegate [FLAG ...]``
takes the flags of ``serve``, and those of ``twistd`` itself before the word.

``--data``, ``--config`` and the variables ``STORAGEGATE_*`` hold for every command as for the
daemon: flags win over variables, variables over the file, the file over the defaults. `Every key
<keys.rst>`_ has its default and what it may be.

Most commands also work over the API of the console of a running daemon: ``--url`` is its admin
listener, or where a proxy has the console. The key pair is that of ``STORAGEGATE_ACCESS_KEY`` and
``STORAGEGATE_SECRET_KEY``, or that of ``--profile``: a table of
``~/.config/storagegate/profiles.toml`` (mode 0600), with ``url``, ``accessKey``, ``secretKey`` and
``caFile``, all optional. It is sent over TLS or to this machine only. What only a running daemon
can do (``trace``, ``call``, ``share``, ``keys judge``, ``config reload``, ``clock confirm``) is
done by the one of the data directory, without ``--url``, with its root pair.

Without a command the script prints its commands, and the state of the daemon in a line. Secrets are
read from standard input or the environment. With ``--json`` a command prints one object, ``trace``
one a line. Colours and a bar of progress are for terminals only; ``NO_COLOR`` switches colours off.

.. csv-table:: Exit codes
    :header: code, meaning

    0,done
    1,"the command failed, with a line on standard error, or it has found problems"
    2,the command line is wrong
    3,the daemon does not run or cannot be reached
    130,interrupted

Completion: ``storagegate completion bash >
~/.local/share/bash-completion/completions/storagegate``; ``storagegate completion zsh`` for a file
``_storagegate`` in a directory of ``fpath``; ``storagegate completion fish >
~/.config/fish/completions/storagegate.fish``.
"""


def page() -> str:
    """Give the whole page."""
    return "\n".join([_INTRODUCTION, *_lines(parser())])


def _lines(command: argparse.ArgumentParser) -> Iterator[str]:
    """Give a command with its flags, and the commands below it."""
    flags = [each for each in command._actions if each.option_strings and each.dest != "help"]
    inner = [each for each in command._actions if isinstance(each, argparse._SubParsersAction)]
    if not inner:
        told = str(command.description)
        title = (command.prog, "-" * len(command.prog))
        example = str(command.epilog).removeprefix("example: ")
        yield from (*title, "", f"{told[0].upper()}{told[1:]}. For example ``{example}``.", "")
        for place in command._actions:
            if not place.option_strings:
                yield f"``{place.metavar}``"
                yield f"    {place.help}"
        for flag in flags:
            argument = "" if flag.nargs == 0 else f" {flag.metavar or _choices(flag)}"
            yield f"``{flag.option_strings[0]}{argument}``"
            yield f"    {_meaning(flag)}"
        yield ""
    for group in inner:
        for each in group.choices.values():
            yield from _lines(each)


def _choices(flag: argparse.Action) -> str:
    return "|".join(flag.choices or ())


def _meaning(flag: argparse.Action) -> str:
    if isinstance(flag, argparse._VersionAction):
        return "print the version and exit"
    if flag.help is None:
        raise ValueError(f"{flag.option_strings[0]} has no help")
    # A star alone would begin emphasis.
    text = flag.help.replace("*", "\\*")
    if flag.required:
        text += "; required"
    return text if flag.default is None or flag.nargs == 0 else f"{text} (default {flag.default})"


if __name__ == "__main__":
    sys.stdout.write(page())
