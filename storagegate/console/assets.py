"""
The files of the console, made from their sources in C{web/}.

Each file name gets a hash of the content, so browsers may cache the file permanently; imports and
the page refer to that name. The build of a wheel writes the files and their compressed forms to
C{static/}. A checkout has only the sources, and a process that serves them makes the files itself.

The build runs this module before anything is installed, so it imports only the standard library.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONSOLE = Path(__file__).resolve().parent

SOURCES = CONSOLE / "web"

BUILT = CONSOLE / "static"
"""The files of an installed package."""

FONTS = SOURCES / "fonts"
"""Subsets of Inter, with their licence."""

VENDOR = SOURCES / "vendor"

LIBRARIES = VENDOR / "vendor.json"
"""The versions, licences and hashes of the libraries, which are stored as published."""

_IMPORT = re.compile(r'((?:\bfrom|\bimport|\bimport\()\s*)"(\./[\w.-]+|[\w/]+)"')
"""The specifier of an import, static or dynamic."""

_ASSET = re.compile(r'"\./([\w-]+\.(?:txt|css))"')
"""The name of a file that a script refers to."""

_STYLE_ASSET = re.compile(r'url\("\./([\w-]+\.(?:svg|woff2))"\)')
"""The name of a font or an image that a style sheet refers to."""


_COMMENT = re.compile(r"^[ \t]*//.*\n", re.MULTILINE)
"""A line of a script that is a comment. The served files have none."""

_STYLE_COMMENT = re.compile(r"/\*.*?\*/\n*", re.DOTALL)

_STYLE_SPACE = re.compile(r"\s*([{};,])\s*|(?<=:)\s+")
"""Space of a style sheet that means nothing. No string of a sheet has any of these characters."""

_SOURCE_MAP = re.compile(r"\n//# sourceMappingURL=.*\n?")

_LINK = re.compile(r'(href|src)="\./([\w.-]+)"')

_HASH_LENGTH = 6
"""Each import has the hash of another file, which compresses to as many half bytes."""

_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
"""Spaces that begin a line. No text of a script goes over several lines."""


def readLibraries() -> list[dict[str, Any]]:
    """Return the descriptions of the libraries."""
    found: list[dict[str, Any]] = json.loads(LIBRARIES.read_text())["libraries"]
    return found


_WORD = re.compile(r"[\w$]")

_NAME = re.compile(r"[A-Za-z_$][\w$]*")

_BEFORE_PATTERN = re.compile(r"(?:^|[^\w$)\]}\s]|\b(?:return|typeof|case|of|in))\s*$")
"""The end of a text after which a slash begins a regular expression, and is no division."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'
    |(?P<slash>/)
    |[\w$]+
    |.
    """,
    re.VERBOSE,
)

_PATTERN = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/\w*")

_TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^\\`$])*(?:`|\$\{)", re.DOTALL)
"""The text of a template up to its end, or to an expression in it."""

_TAG_LINE = re.compile(r"\s*\n\s*(?=[<`]|\$\{)|(?<=>)\s*\n\s*")
"""Space with a line end beside a tag or an expression, of which htm makes nothing."""


def squeeze(script: str) -> str:
    """
    Remove the spaces that a script without comments does not need: a fortieth of its size after
    compression. Line ends stay wherever they could end a statement.
    """
    made: list[str] = []
    last = ""
    # Braces that are open in each expression of a template, and whether the template is HTML.
    depths: list[int] = []
    areHTML: list[bool] = []
    position, isText = 0, False
    while position < len(script):
        if isText:
            found = _TEMPLATE.match(script, position)
            assert found is not None, "the template has no end"
            isText = False
            if found[0].endswith("{"):
                depths.append(0)
            isHTML = areHTML[-1] if found[0].endswith("{") else areHTML.pop()
        else:
            found = _TOKEN.match(script, position)
            assert found is not None
            if found["slash"] and _BEFORE_PATTERN.search(script, max(0, position - 10), position):
                found = _PATTERN.match(script, position) or found
        position = found.end()
        token = found[0]
        if found.re is _TEMPLATE:
            token = _TAG_LINE.sub("", token) if isHTML else token
        elif found.re is _TOKEN and found["space"]:
            token = _neededSpace(token, last, script[position : position + 1])
        elif found.re is _TOKEN and token == "`":
            isText = True
            areHTML.append(made[-1:] == ["html"])
        elif found.re is _TOKEN and depths and token in "{}":
            depths[-1] += 1 if token == "{" else -1
            if depths[-1] < 0:
                depths.pop()
                isText = True
        if not token:
            continue
        if found.re is _TOKEN and token == "}" and last == ";":
            made.pop()
        isArrow = token == ">" and len(made) > 4 and made[-1] == "=" and made[-2] == ")"
        if isArrow and made[-4] == "(" and not _WORD.match(made[-5][-1]):
            # One parameter needs no parentheses, unless a word stands before it.
            made[-4:-1] = [made[-3]] if _NAME.fullmatch(made[-3]) else made[-4:-1]
        made.append(token)
        last = token[-1]
    return "".join(made)


def _neededSpace(space: str, last: str, following: str) -> str:
    """
    Return what has to stay of spaces between two tokens.

    @param last: The character before them; empty at the beginning.
    @param following: The character after them; empty at the end.
    """
    if "\n" in space:
        return "" if last in "{,;(=>:?&|[" or following in "})].,?:&|" else "\n"
    areWords = _WORD.match(last) and _WORD.match(following)
    return " " if areWords or last == following else ""


def bareScript(source: str) -> str:
    """Return a script without comments and needless spaces."""
    return squeeze(_COMMENT.sub("", source))


def _scripts() -> dict[str, str]:
    """Return the source of each script but the libraries, by its name."""
    found = {path.name: path.read_text() for path in SOURCES.glob("*.js")}
    versions = ["name", "version", "license"]
    shown = [{name: library[name] for name in versions} for library in readLibraries()]
    shown.append({"name": "Inter", "version": "", "license": "OFL-1.1"})
    found["libraries.js"] = f"export const LIBRARIES = {json.dumps(shown)};\n" + (
        'export const LICENCES = "./licences.txt";\nexport const FONT_LICENCE = "./inter.txt";\n'
    )
    return found


def _otherTexts() -> dict[str, str]:
    """Return the text of each file that gets a hash and is no script of ours, by its name."""
    found = {path.name: path.read_text() for path in SOURCES.glob("*.svg")}
    for path in SOURCES.glob("*.css"):
        bare = _STYLE_COMMENT.sub("", path.read_text())
        found[path.name] = _STYLE_SPACE.sub(r"\1", bare)
    for path in VENDOR.glob("*.js"):
        found[path.name] = _SOURCE_MAP.sub("\n", path.read_text())
    notices = []
    for library in readLibraries():
        licence = (VENDOR / f"{library['name']}.LICENSE").read_text()
        notices.append(f"{library['name']} {library['version']}, {library['license']}\n\n{licence}")
    found["licences.txt"] = "\n\n".join(notices)
    found["inter.txt"] = (FONTS / "OFL.txt").read_text()
    return found


_PACKAGES = {"preact": "preact.js", "preact/hooks": "hooks.js", "htm": "htm.js"}
"""The files of libraries, by the specifier of their imports."""

_ENTRY = "app.js"

_FRAME = "shell.js"
"""Imports the pages on demand, and fetches all that one needs at once."""

_STATEMENT = re.compile(r'\s*import(?:(\{[^}]*\}|\s+\w+\s+)from)?\s*"([^"]+)";?')
"""A static import at the beginning of a script without needless spaces: names and specifier."""

_DYNAMIC = re.compile(r'\bimport\("\./([\w.-]+)"\)')

_REEXPORT = re.compile(r'export\{([\w,]+)\}from"\./([\w.-]+)";?')

_DEFINITION = re.compile(
    r"^(export )?(?:default )?(?:(?:async )?function\*?|const|let|class) ([\w$]+)", re.MULTILINE
)
"""A definition of a source at its outermost level, where lines have no indent."""


def _target(specifier: str) -> str:
    """Return the file that an import specifier names."""
    return specifier[2:] if specifier.startswith("./") else _PACKAGES[specifier]


class _Script:
    """
    A script without needless spaces, and without the static imports at its beginning.

    @ivar imports: The names that it imports, as in the braces of a statement, by file.
    @ivar reexports: The files whose names it exports, by name.
    @ivar lazy: The files that it imports on demand.
    @ivar defined: Whether it exports the names of its outermost level, by name.
    """

    def __init__(self, source: str) -> None:
        text = bareScript(source)
        self.imports: dict[str, list[str]] = {}
        position = 0
        while found := _STATEMENT.match(text, position):
            names = (found[1] or "").strip()
            if names and not names.startswith("{"):
                names = f"{{default as {names}}}"
            parts = filter(None, names[1:-1].split(","))
            self.imports.setdefault(_target(found[2]), []).extend(parts)
            position = found.end()
        self.body = text[position:].lstrip("\n")
        self.reexports = {
            name: file for names, file in _REEXPORT.findall(text) for name in names.split(",")
        }
        self.lazy = set(_DYNAMIC.findall(text))
        self.defined = {name: bool(export) for export, name in _DEFINITION.findall(source)}

    @property
    def needed(self) -> set[str]:
        """The files that a browser fetches with this one."""
        return {*self.imports, *self.reexports.values()}


def _join(
    names: list[str],
    scripts: Mapping[str, _Script],
    places: Mapping[str, str],
    exported: set[tuple[str, str]],
) -> str:
    """
    Return several scripts as one.

    @param names: Their names, each after the scripts that it imports.
    @param places: The joined script of each.
    @param exported: The files and names that stay exported.
    @raise ValueError: They use one name for two things.
    """
    origins: dict[str, tuple[str, str]] = {}
    outside: dict[str, dict[str, None]] = {}
    bodies = []

    def define(name: str, local: str, origin: tuple[str, str]) -> None:
        if origins.setdefault(local, origin) != origin:
            raise ValueError(
                f"{name} uses the name {local} of {origins[local][0]}, with which it is joined"
            )

    for name in names:
        script = scripts[name]
        for file, parts in script.imports.items():
            for part in parts:
                original, _, local = part.partition(" as ")
                if file in names and local:
                    text = f"{name} renames {original} of {file}, with which it is joined"
                    raise ValueError(text)
                define(name, local or original, (file, original))
            if file not in names:
                place = places.get(file, file)
                outside.setdefault(place, {}).update(dict.fromkeys(parts))
        body = script.body
        for local, isExported in script.defined.items():
            define(name, local, (name, local))
            if isExported and (name, local) not in exported:
                definition = rf"\bexport ((?:async )?[a-z]+\*? ?{re.escape(local)}\b)"
                body = re.sub(definition, r"\1", body, count=1)
        if any(file in names for file in script.reexports.values()):
            body = _REEXPORT.sub("", body)
        bodies.append(body if body.endswith(";") else body + "\n")
    imports = [
        f'import{{{",".join(parts)}}}from"./{file}";' if parts else f'import"./{file}";'
        for file, parts in outside.items()
    ]
    return "".join([*imports, *bodies])


def joinScripts(sources: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """
    Join the scripts that browsers always fetch together: one file compresses better than its
    parts, and takes one request. Scripts belong together if the same entries (the first script,
    and the scripts that are imported on demand) lead to them by static imports.

    @param sources: The sources of scripts by file name. Imports come first in each.
    @return: The joined scripts by file name, and the name of its joined script for each source.
    @raise ValueError: Scripts that belong together use one name for two things.
    """
    scripts = {name: _Script(source) for name, source in sources.items()}
    entries = {_ENTRY}.union(*(script.lazy for script in scripts.values()))
    reached: dict[str, set[str]] = {name: set() for name in scripts}
    ordered: dict[str, None] = {}

    def visit(name: str, entry: str) -> None:
        if name in scripts and entry not in reached[name]:
            reached[name].add(entry)
            for other in sorted(scripts[name].needed):
                visit(other, entry)
            ordered[name] = None

    for entry in sorted(entries):
        visit(entry, entry)
    groups: dict[frozenset[str], list[str]] = {}
    for name in ordered:
        # What the first script imports is there before any other script.
        isFirst = _ENTRY in reached[name] and name != _ENTRY
        groups.setdefault(frozenset([""] if isFirst else reached[name]), []).append(name)
    places: dict[str, str] = {}
    for names in groups.values():
        place = next((name for name in names if name in entries), names[-1])
        places |= dict.fromkeys(names, place)
    exported = {
        (file, part.partition(" ")[0])
        for user, script in scripts.items()
        for file, parts in script.imports.items()
        for part in parts
        if places.get(file) != places.get(user)
    }
    for name, script in scripts.items():
        exported |= {(file, local) for local, file in script.reexports.items()}
        if name in entries:
            exported |= {(name, local) for local in script.defined}
    joined = {
        places[names[0]]: _join(names, scripts, places, exported) for names in groups.values()
    }
    return joined, places


_STATIC = re.compile(r'\b(?:from|import)"\./([\w.-]+)"')


def needed(name: str, scripts: Mapping[str, str]) -> set[str]:
    """
    Return the scripts that a browser fetches for one, itself among them.

    @param scripts: Joined scripts by file name.
    """
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_STATIC.findall(scripts.get(name, "")))
    return found


def _preloading(places: Mapping[str, str], scripts: Mapping[str, str]) -> str:
    """
    Return the frame, whose imports on demand fetch all that a page needs at once, and not only
    after the script of the page has come.

    @param scripts: Joined scripts by file name.
    """

    def write(found: re.Match[str]) -> str:
        target = places[found[1]]
        more = sorted(needed(target, scripts) - needed(_FRAME, scripts) - {target})
        imports = ",".join(f'import("./{each}")' for each in [target, *more])
        return f"Promise.all([{imports}]).then(e=>e[0])" if more else imports

    return _DYNAMIC.sub(write, scripts[_FRAME])


def makeAssets() -> dict[str, bytes]:
    """
    Make all served files.

    @return: Uncompressed contents by path below the root of the console.
    @raise KeyError: An import names an unknown file.
    @raise ValueError: The imports have a cycle, or a source is imported by nothing.
    """
    scripts = _scripts()
    joined, places = joinScripts(scripts)
    texts = _otherTexts() | joined | {_FRAME: _preloading(places, joined)}
    fonts = {path.name: path.read_bytes() for path in FONTS.glob("*.woff2")}
    names: dict[str, str] = {}
    made: dict[str, bytes] = {}
    open_: list[str] = []

    def make(name: str) -> str:
        """Make a file after its imports; return its hashed name."""
        if name in names:
            return names[name]
        if name in open_:
            raise ValueError(f"{name} imports itself: {open_}")
        open_.append(name)
        content = fonts[name] if name in fonts else linked(name)
        stem, _, ending = name.rpartition(".")
        digest = hashlib.sha256(content).hexdigest()[:_HASH_LENGTH]
        names[name] = f"{stem}.{digest}.{ending}"
        made[f"assets/{names[name]}"] = content
        open_.remove(name)
        return names[name]

    def place(name: str) -> str:
        """Return the file that has a script."""
        return places.get(name, name)

    def linked(name: str) -> bytes:
        """Return a text with the hashed names of the files that it refers to."""
        text = texts[name]
        if name not in _PACKAGES.values():
            text = _INDENT.sub("", text)
        if name.endswith(".css"):
            text = _STYLE_ASSET.sub(lambda found: f'url("./{make(found[1])}")', text)
        if name.endswith(".js"):
            text = _IMPORT.sub(
                lambda found: f'{found[1]}"./{make(place(_target(found[2])))}"', text
            )
            text = _ASSET.sub(lambda found: f'"./assets/{make(found[1])}"', text)
        return text.encode()

    page = (SOURCES / "index.html").read_text()
    page = _LINK.sub(lambda found: f'{found[1]}="./assets/{make(place(found[2]))}"', page)
    unused = (set(texts) | set(fonts)) - set(names) | set(scripts) - set(places)
    if unused:
        raise ValueError(f"{sorted(unused)} are not imported")
    made["index.html"] = page.encode()
    return made


def writeAssets(directory: Path) -> None:
    """
    Write each file below a directory, plain and compressed with gzip. Blocks for 0.3 s.

    @param directory: Created if it does not exist.
    """
    for path, content in makeAssets().items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.with_name(f"{target.name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
