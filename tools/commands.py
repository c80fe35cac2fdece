"""
Print every command and flag, C{docs/commands.rst}, as the parser of the command line has them.

Usage: C{python tools/commands.py > docs/commands.rst}.
"""

import argparse
import sys
from collections.abc import Iterator

from storagegate.cli.commandline import parser

_INTRODUCTION = """\
Commands
========

.. Printed by tools/commands.py: change the parser that it reads, not this page.

``storagegate COMMAND [FLAG ...]`` and ``python -m storagegate COMMAND [FLAG ...]`` are the same;
``python -m storagegate`` without a command is ``storagegate serve``. ``twistd storagegate [FLAG
...]`` takes the flags of ``serve``, and the flags of ``twistd`` itself before the word.

Every command reads ``--data``, ``--config`` and the variables ``STORAGEGATE_*`` as the daemon does:
flags override variables, variables override the file, and the file overrides the defaults. `The
keys <keys.rst>`_ are listed with their defaults and valid values.

A command on a data directory finds a running daemon by ``DATA/listeners.json`` (mode 0600), which
the daemon writes when it serves and removes when it stops. So ``storagegate status --data DIR`` and
``storagegate connect TOOL --data DIR`` need neither the ports nor the certificates of that daemon.
``trace``, ``call``, ``share``, ``keys judge``, ``config reload`` and ``clock confirm`` need a
running daemon; they call its console with the root key pair.

With ``--url``, the URL of an admin listener or of a console behind a proxy, most commands work over
the API of that console instead. A command sends the key pair over TLS or to this machine only. The
key pair comes from the first of these that has one:

#. ``--profile NAME``: a table of ``~/.config/storagegate/profiles.toml`` (mode 0600) with ``url``,
   ``accessKey``, ``secretKey`` and ``caFile``, all optional; or a profile of aws-cli with that name
#. ``STORAGEGATE_ACCESS_KEY`` and ``STORAGEGATE_SECRET_KEY``
#. ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, with ``AWS_SESSION_TOKEN`` if it is set
#. the profile ``AWS_PROFILE`` of ``~/.aws/credentials`` and ``~/.aws/config``
   (``AWS_SHARED_CREDENTIALS_FILE`` and ``AWS_CONFIG_FILE`` name other files)
#. the profile ``default`` there, if it has an ``endpoint_url`` or ``AWS_ENDPOINT_URL`` is set: a
   pair without an endpoint belongs to Amazon

A session token is sent as ``x-amz-security-token``. The API of the daemon has no temporary keys and
answers that it does not support them.

``connect`` prints the endpoint of ``--endpoint``, else of ``AWS_ENDPOINT_URL_S3`` or
``AWS_ENDPOINT_URL``, else of the named profile, else of the daemon; and the region of ``--region``,
else of ``AWS_REGION`` or ``AWS_DEFAULT_REGION``, else of the named profile, else of the daemon.

Without a command, the script prints its commands and the state of the daemon in one line. It reads
secrets from standard input or the environment. With ``--json`` a command prints one object, and
``trace`` one object a line. Only terminals get colours and progress bars; ``NO_COLOR`` disables
colours.

.. csv-table:: Exit codes
    :header: code, meaning

    0,done
    1,"the command failed, with one line on standard error, or found problems"
    2,the command line is invalid
    3,the daemon does not run or is unreachable
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
