"""
The console script C{storagegate}: finds a command in the table, runs it, and reports its error.

The exit codes::

    0    done
    1    the command failed, with one line on standard error, or it has found problems
    2    the command line is wrong
    3    the daemon does not run, or cannot be reached
    130  interrupted
"""

import os
import sqlite3
import sys
from collections.abc import Sequence

from storagegate.cli.commandline import parser
from storagegate.cli.invocation import FAILED, INTERRUPTED, CommandError, Invocation
from storagegate.cli.output import CommandOutput, escape
from storagegate.core.extras import missingExtra


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code."""
    _openClosed()
    words = sys.argv[1:] if arguments is None else arguments
    options = parser(words).parse_args(words)
    invocation = Invocation(options, CommandOutput(options.json, os.environ), os.environ)
    try:
        if options.command is None:
            from storagegate.cli.status import overview

            code: int = overview(invocation)
        else:
            code = options.command.run(invocation)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has closed it: flushing at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        reason = _reasonOf(error)
        if reason is None:
            raise
        print(escape(" ".join(f"storagegate: {reason}".split())), file=sys.stderr)
        return error.code if isinstance(error, CommandError) else FAILED


def _openClosed() -> None:
    """Open C{/dev/null} in place of a closed standard output or error."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _reasonOf(error: Exception) -> str | None:
    """Return an error as one line for the operator; L{None} for a bug."""
    if isinstance(error, ImportError):
        return missingExtra(error)
    from storagegate.storage.errors import StoreError

    # Arguments may contain invalid UTF-8.
    expected = CommandError | StoreError | sqlite3.Error | OSError | UnicodeEncodeError
    # Some errors of the store have an empty text.
    return (str(error) or type(error).__name__) if isinstance(error, expected) else None
