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

_BLANK = re.compile(r"\n\s*\n")

_STYLE_COMMENT = re.compile(r"/\*.*?\*/\n*", re.DOTALL)

_STYLE_SPACE = re.compile(r"\s*([{};,])\s*|(?<=:)\s+")
"""Space of a style sheet that means nothing. No string of a sheet has any of these characters."""

_SCRIPT = re.compile(
    r"""(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    # A regular expression stands where a value may begin.
    r"|(?P<pattern>(?<=[(,=:\[!&|?{};])[ ]?/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*)"
    r"|(?P<mark>[`{}])"
    r"|(?P<space>(?<=[=<>?:,{}()\[\];|&!*]) +| +(?=[=<>?:,{}()\[\];|&!*]))"
)
"""Texts, templates and blocks of a script, and the spaces beside its operators."""

_TEMPLATE = re.compile(r"(?:[^`$\\]|\\.|\$(?!\{))*", re.DOTALL)

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


def _tight(script: str) -> str:
    """Return a script without the spaces beside operators; texts and templates stay as they are."""
    parts: list[str] = []
    # For each open template: the number of open blocks in its present expression.
    depths: list[int] = []
    at = 0

    def template() -> None:
        """Take the text of a template up to its end or its next expression."""
        nonlocal at
        found = _TEMPLATE.match(script, at)
        assert found is not None, at
        ends = script[found.end()] == "`"
        at = found.end() + (1 if ends else 2)
        parts.append(script[found.start() : at])
        if ends:
            depths.pop()
        else:
            depths[-1] = 0

    while found := _SCRIPT.search(script, at):
        parts.append(script[at : found.start()])
        at = found.end()
        if found["space"] is not None:
            continue
        parts.append(found[0])
        if found[0] == "`":
            depths.append(0)
            template()
        elif found[0] == "{" and depths:
            depths[-1] += 1
        elif found[0] == "}" and depths:
            if depths[-1]:
                depths[-1] -= 1
            else:
                template()
    return "".join([*parts, script[at:]])


def _bare(path: Path) -> str:
    """Return a source without its comments, blank lines, and spaces that mean nothing."""
    text = path.read_text()
    if path.suffix == ".js":
        return _tight(_BLANK.sub("\n", _COMMENT.sub("", text)))
    if path.suffix == ".css":
        return _STYLE_SPACE.sub(r"\1", _STYLE_COMMENT.sub("", text))
    return text


def sources() -> dict[str, str]:
    """Return the text of each file that gets a hash, by its name."""
    files = (path for path in SOURCES.iterdir() if path.suffix in (".js", ".css", ".svg"))
    found = {path.name: _bare(path) for path in files}
    for path in VENDOR.glob("*.js"):
        found[path.name] = _SOURCE_MAP.sub("\n", path.read_text())
    notices = []
    for library in readLibraries():
        licence = (VENDOR / f"{library['name']}.LICENSE").read_text()
        notices.append(f"{library['name']} {library['version']}, {library['license']}\n\n{licence}")
    found["licences.txt"] = "\n\n".join(notices)
    found["inter.txt"] = (FONTS / "OFL.txt").read_text()
    versions = ["name", "version", "license"]
    shown = [{name: library[name] for name in versions} for library in readLibraries()]
    shown.append({"name": "Inter", "version": "", "license": "OFL-1.1"})
    found["libraries.js"] = f"export const LIBRARIES = {json.dumps(shown)};\n" + (
        'export const LICENCES = "./licences.txt";\nexport const FONT_LICENCE = "./inter.txt";\n'
    )
    return found


def _target(specifier: str, bare: Mapping[str, str]) -> str:
    """Return the file that an import specifier names."""
    return specifier[2:] if specifier.startswith("./") else bare[specifier]


def makeAssets() -> dict[str, bytes]:
    """
    Make all served files.

    @return: Uncompressed contents by path below the root of the console.
    @raise KeyError: An import names an unknown file.
    @raise ValueError: The imports have a cycle, or a source is imported by nothing.
    """
    bare = {"preact": "preact.js", "preact/hooks": "hooks.js", "htm": "htm.js"}
    texts = sources()
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

    def linked(name: str) -> bytes:
        """Return a text with the hashed names of the files that it refers to."""
        text = texts[name]
        if name not in bare.values():
            text = _INDENT.sub("", text)
        if name.endswith(".css"):
            text = _STYLE_ASSET.sub(lambda found: f'url("./{make(found[1])}")', text)
        if name.endswith(".js"):
            text = _IMPORT.sub(lambda found: f'{found[1]}"./{make(_target(found[2], bare))}"', text)
            text = _ASSET.sub(lambda found: f'"./assets/{make(found[1])}"', text)
        return text.encode()

    page = (SOURCES / "index.html").read_text()
    page = _LINK.sub(lambda found: f'{found[1]}="./assets/{make(found[2])}"', page)
    unused = (set(texts) | set(fonts)) - set(names)
    if unused:
        raise ValueError(f"{sorted(unused)} are not imported")
    made["index.html"] = page.encode()
    return made


def writeAssets(directory: Path) -> None:
    """
    Write each file below a directory, plain and compressed with gzip. Blocks for 0.1 s.

    @param directory: Created if it does not exist.
    """
    for path, content in makeAssets().items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.with_name(f"{target.name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
