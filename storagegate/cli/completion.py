"""
C{storagegate completion}: shell completion, generated from the parser of the command line.

The generated scripts complete words without starting Python. Each script finds the command among
the words before the cursor, and offers its flags, or the values of the preceding flag: words, files
or directories.
"""

import argparse
from collections.abc import Iterator

from attrs import frozen

from storagegate.cli.commandline import parser
from storagegate.cli.invocation import Invocation

_DIRECTORIES = ("DIR", "DATA")
_FILES = ("FILE",)
"""The names of flag arguments that are paths."""


@frozen
class Flag:
    """
    A flag.

    @ivar kind: C{none} for a switch, C{words}, C{file}, C{directory}, or C{text}.
    @ivar values: The words to offer.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    meaning: str


@frozen
class Level:
    """
    The possible continuations of some words.

    @ivar path: The preceding words, C{""} for none.
    @ivar words: Subcommands, or the values of a positional argument, with their meanings.
    """

    path: str
    words: tuple[tuple[str, str], ...]
    flags: tuple[Flag, ...]


def completion(invocation: Invocation) -> int:
    """Print the completion script of a shell."""
    shell = invocation.options.shell
    script = {"bash": bash, "zsh": zsh, "fish": fish}[shell]()
    invocation.output.result({"shell": shell, "script": script}, script.splitlines())
    return 0


def levels() -> list[Level]:
    """Return the possible continuations of each prefix of a command line."""
    return list(_walk(parser(), ""))


def _walk(command: argparse.ArgumentParser, path: str) -> Iterator[Level]:
    words: list[tuple[str, str]] = []
    flags = []
    inner: dict[str, argparse.ArgumentParser] = {}
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner = dict(action.choices)
            words += [(each.dest, each.help or "") for each in action._choices_actions]
            helped = {each.dest for each in action._choices_actions}
            words += [(name, "") for name in inner if name not in helped]
        elif not action.option_strings:
            words += [(str(each), "") for each in action.choices or ()]
        else:
            flags += [_flag(name, action) for name in action.option_strings if name[:2] == "--"]
    yield Level(path, tuple(words), tuple(flags))
    for name, each in inner.items():
        yield from _walk(each, f"{path} {name}".strip())


def _flag(name: str, action: argparse.Action) -> Flag:
    kind, values = "text", tuple(str(each) for each in action.choices or ())
    metavar = str(action.metavar or "")
    if action.nargs == 0:
        kind = "none"
    elif values:
        kind = "words"
    elif metavar in _DIRECTORIES:
        kind = "directory"
    elif metavar in _FILES:
        kind = "file"
    elif "|" in metavar and metavar.islower():
        kind, values = "words", tuple(metavar.split("|"))
    return Flag(name, kind, values, action.help or "")


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _cases(all: list[Level]) -> Iterator[str]:
    """Yield the branches that bash and zsh share: commands, flags, and values of flags."""
    for level in all:
        yield f"        {_quote(level.path)})"
        yield f"            words={_quote(' '.join(name for name, _ in level.words))}"
        yield f"            flags={_quote(' '.join(flag.name for flag in level.flags))}"
        yield '            case "$before" in'
        for flag in level.flags:
            if flag.kind == "none":
                continue
            values = _quote(" ".join(flag.values))
            yield f"                {flag.name}) kind={flag.kind} values={values} ;;"
        yield "            esac"
        yield "            ;;"


def _groups(all: list[Level]) -> str:
    """Return the pattern of all command prefixes."""
    return " | ".join(_quote(level.path) for level in all if level.path)


def _flagsWithValues(all: list[Level]) -> str:
    found = {flag.name for level in all for flag in level.flags if flag.kind != "none"}
    return " | ".join(sorted(found))


def bash() -> str:
    """Return the bash script, for C{~/.local/share/bash-completion/completions/storagegate}."""
    all = levels()
    lines = [
        "# Completion of storagegate for bash: storagegate completion bash",
        "_storagegate() {",
        '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '    local path="" word skip="" words="" flags="" kind="" values=""',
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '        if [ -n "$skip" ]; then skip=""; continue; fi',
        f'        case "$word" in {_flagsWithValues(all)}) skip=1; continue ;;'
        " -*) continue ;; esac",
        f'        case "${{path:+$path }}$word" in {_groups(all)}) path="${{path:+$path }}$word" ;;'
        " esac",
        "    done",
        '    case "$path" in',
        *_cases(all),
        "    esac",
        "    COMPREPLY=()",
        '    case "$kind" in',
        '        words) COMPREPLY=($(compgen -W "$values" -- "$current")) ;;',
        "        file) compopt -o filenames 2>/dev/null;"
        ' mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;',
        "        directory) compopt -o filenames 2>/dev/null;"
        ' mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;',
        "        text) ;;",
        '        *) case "$current" in',
        '            -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;',
        '            *) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;',
        "        esac ;;",
        "    esac",
        "}",
        "complete -F _storagegate storagegate",
    ]
    return "\n".join(lines) + "\n"


def zsh() -> str:
    """Return the zsh script, for a file C{_storagegate} in a directory of C{fpath}."""
    all = levels()
    lines = [
        "#compdef storagegate",
        "# Completion of storagegate for zsh: storagegate completion zsh",
        "_storagegate() {",
        '    local current="${words[CURRENT]}" before="${words[CURRENT-1]}"',
        '    local path_="" word skip="" flags="" kind="" values="" commands=""',
        '    for word in "${(@)words[2,CURRENT-1]}"; do',
        '        if [[ -n "$skip" ]]; then skip=""; continue; fi',
        f'        case "$word" in {_flagsWithValues(all)}) skip=1; continue ;;'
        " -*) continue ;; esac",
        f'        case "${{path_:+$path_ }}$word" in {_groups(all)})'
        ' path_="${path_:+$path_ }$word" ;; esac',
        "    done",
        '    case "$path_" in',
        *(line.replace(" words=", " commands=") for line in _cases(all)),
        "    esac",
        '    case "$kind" in',
        "        words) compadd -- ${=values} ;;",
        "        file) _files ;;",
        "        directory) _files -/ ;;",
        "        text) ;;",
        '        *) case "$current" in',
        "            -*) compadd -- ${=flags} ;;",
        "            *) compadd -- ${=commands} ;;",
        "        esac ;;",
        "    esac",
        "}",
        'if [ "${funcstack[1]}" = _storagegate ]; then _storagegate "$@";'
        " else compdef _storagegate storagegate; fi",
    ]
    return "\n".join(lines) + "\n"


def fish() -> str:
    """Return the fish script, for C{~/.config/fish/completions/storagegate.fish}."""
    all = levels()
    lines = [
        "# Completion of storagegate for fish: storagegate completion fish",
        "function __storagegate_at",
        "    set -l found",
        "    set -l skip 0",
        "    for word in (commandline -opc)[2..-1]",
        "        if test $skip = 1",
        "            set skip 0",
        "            continue",
        "        end",
        "        switch $word",
        f"            case {_flagsWithValues(all).replace(' | ', ' ')}",
        "                set skip 1",
        "            case '-*'",
        "            case '*'",
        '                if contains -- (string join " " $found $word)'
        f" {_groups(all).replace(' | ', ' ')}",
        "                    set -a found $word",
        "                end",
        "        end",
        "    end",
        '    test "$found" = "$argv"',
        "end",
        "complete -c storagegate -f",
    ]
    for level in all:
        start = f"complete -c storagegate -n {_quote(f'__storagegate_at {level.path}'.rstrip())}"
        for name, meaning in level.words:
            lines.append(f"{start} -a {_quote(name)} -d {_quote(meaning)}")
        for flag in level.flags:
            takes = {
                "none": "",
                "words": f" -x -a {_quote(' '.join(flag.values))}",
                "file": " -r -F",
                "directory": " -x -a '(__fish_complete_directories)'",
                "text": " -x",
            }[flag.kind]
            lines.append(f"{start} -l {flag.name[2:]}{takes} -d {_quote(flag.meaning)}")
    return "\n".join(lines) + "\n"
