"""The files of the console: made from their sources, small, and with nothing from elsewhere."""

import gzip
import hashlib
import json
import re
import subprocess
from pathlib import Path

import brotli
from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.assets import (
    SOURCES,
    VENDOR,
    bareScript,
    joinScripts,
    makeAssets,
    readLibraries,
    squeeze,
)
from storagegate.console.pages import pagesDirectory
from tests.support.programs import needs
from tests.support.selection import long

ALL_BYTES = 150_000

SIGN_IN_BYTES = 30_000

OBJECTS_BYTES = 60_000

FONT_BYTES = 60_000

_DIFFERENT = """
const { parse } = require("internal/deps/acorn/acorn/dist/acorn");
const plain = (name, value) =>
  name === "start" || name === "end" ? undefined : value instanceof RegExp ? String(value)
  : name === "raw" || name === "cooked" ? value.replace(/\\s*\\n\\s*/g, "") : value;
const options = { ecmaVersion: "latest", sourceType: "module" };
const tree = (text) => JSON.stringify(parse(text, options), plain);
const pairs = JSON.parse(require("fs").readFileSync(0, "utf8"));
const differs = ([, [one, other]]) => tree(one) !== tree(other);
console.log(JSON.stringify(Object.entries(pairs).filter(differs).map(([name]) => name)));
"""
"""Prints the names of pairs of scripts that have different syntax trees."""

_EXPORTS = """
const { parse } = require("internal/deps/acorn/acorn/dist/acorn");
const files = JSON.parse(require("fs").readFileSync(0, "utf8"));
const named = (node) => (node.id ? [node.id.name] : node.declarations.map((each) => each.id.name));
const options = { ecmaVersion: "latest", sourceType: "module" };
const exportsOf = (text) => parse(text, options).body.flatMap((node) =>
  node.type === "ExportDefaultDeclaration" ? ["default"]
  : node.type !== "ExportNamedDeclaration" ? []
  : node.declaration ? named(node.declaration)
  : node.specifiers.map((each) => each.exported.name));
const found = Object.entries(files).map(([name, text]) => [name, exportsOf(text)]);
console.log(JSON.stringify(Object.fromEntries(found)));
"""
"""Prints the names that modules export; fails for one that is no module."""

_STATIC_IMPORT = re.compile(r'(?:\bfrom|\bimport)\s*"\./([\w.-]+)"')


def needed(files: dict[str, bytes], *names: str) -> set[str]:
    """Return the files that a browser fetches for some, themselves among them."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            for other in _STATIC_IMPORT.findall(files[name].decode()):
                waiting.append(f"assets/{other}")
    return found


class AssetsTests(SynchronousTestCase):
    """The files that are made of C{storagegate/console/web}."""

    def test_hashes(self) -> None:
        """The name of each file but the page has the hash of the content."""
        for name, content in makeAssets().items():
            if name != "index.html":
                digest = hashlib.sha256(content).hexdigest()
                self.assertEqual(name.split(".")[-2], digest[:6], name)

    def test_directory(self) -> None:
        """A checkout serves the files that its sources make now."""
        directory = Path(pagesDirectory())
        found = {
            path.relative_to(directory).as_posix(): path.read_bytes()
            for path in directory.rglob("*")
            if path.is_file()
        }
        files = makeAssets()
        self.assertEqual(set(found), {name + ending for name in files for ending in ("", ".gz")})
        for name, content in files.items():
            self.assertEqual(found[name], content, name)
            self.assertEqual(gzip.decompress(found[f"{name}.gz"]), content, name)

    def test_bare(self) -> None:
        """
        Served scripts and styles have neither comments nor indents; a library is served as it was
        published.
        """
        files = makeAssets()
        vendor = {path.name.partition(".")[0] for path in VENDOR.iterdir()}
        for name, body in files.items():
            stem = name.removeprefix("assets/").partition(".")[0]
            if stem not in vendor and name.endswith((".js", ".css")):
                self.assertEqual(
                    re.findall(r"^(?:[ \t].*|//.*|/\*.*)", body.decode(), re.M), [], name
                )
        (preact,) = [body for name, body in files.items() if "/preact." in name]
        self.assertIn((VENDOR / "preact.js").read_text().split("\n")[0], preact.decode())

    def test_squeeze(self) -> None:
        """A script loses needless spaces; texts, patterns and templates keep theirs."""
        for source, expected in (
            ("const a = b + c ;\n", "const a=b+c;"),
            ("return x in y ? [1, 2] : {};\n", "return x in y?[1,2]:{};"),
            ("a = b + +c - -d;\n", "a=b+ +c- -d;"),
            ("i++\nj\n", "i++\nj"),
            ("f(\n  a,\n  b,\n)\n.then()\n", "f(a,b,).then()"),
            ("if (a) {\n b();\n}\nc();\n", "if(a){b()}\nc();"),
            ("say(\"a  'b\", 'c  \"d');\n", "say(\"a  'b\",'c  \"d');"),
            ("x = a / b / c;\n", "x=a/b/c;"),
            ("f((a) => (b, c) => { d(); });\n", "f(a=>(b,c)=>{d()});"),
            ("g = async (a) => b((c), (1));\n", "g=async(a)=>b((c),(1));"),
            ('t.replace(/ "[/ ]`/g, b) / 2;\n', 't.replace(/ "[/ ]`/g,b)/2;'),
            ("return / '/.test(a);\n", "return/ '/.test(a);"),
            (
                "html`<a  b=${c + { d: 1 }.d}>  ${e && html`  $f \\` `} g</a>` + 1;\n",
                "html`<a  b=${c+{d:1}.d}>  ${e&&html`  $f \\` `} g</a>`+1;",
            ),
            (
                "html`\n  <a\n    b=${c}\n    d>\n    ${`e\n<f`}\n    ${g} h\n i\n  </a>\n`;\n",
                "html`<a\n    b=${c}\n    d>${`e\n<f`}${g} h\n i</a>`;",
            ),
        ):
            self.assertEqual(squeeze(source), expected, source)

    @long("starts node")
    @needs("node")
    def test_sameProgram(self) -> None:
        """Without its comments and spaces, each script has the same syntax tree."""
        pairs = {
            path.name: [path.read_text(), bareScript(path.read_text())]
            for path in SOURCES.glob("*.js")
        }
        self.assertTrue(all(len(one) > len(other) for one, other in pairs.values()))
        run = subprocess.run(
            ["node", "--expose-internals", "-e", _DIFFERENT],
            input=json.dumps({**pairs, "unlike": ["f(a / b)", "f(a)"]}).encode(),
            capture_output=True,
            check=True,
        )
        self.assertEqual(json.loads(run.stdout), ["unlike"])

    def test_joined(self) -> None:
        """
        Scripts that come together are one file: its imports stand once, and only names that
        another file uses stay exported.
        """
        joined, places = joinScripts(
            {
                "app.js": 'import htm from "htm";\nimport { a } from "./low.js";\n'
                'a(htm, () => import("./page.js"));\n',
                "low.js": "export const a = 1;\nexport function b() {\n  return 2;\n}\n",
                "texts.js": 'import { a } from "./low.js";\na();\n',
                "part.js": 'import { a, b as c } from "./low.js";\nimport "./texts.js";\n'
                "export const part = a + c;\nexport const styled = 1;\n",
                "page.js": 'import { a } from "./low.js";\nimport { part } from "./part.js";\n'
                'export { styled } from "./part.js";\nexport const page = part + a;\n',
            }
        )
        self.assertEqual(
            joined,
            {
                "app.js": 'import{default as htm}from"./htm.js";import{a}from"./low.js";'
                'a(htm,()=>import("./page.js"));',
                "low.js": "export const a=1;export function b(){return 2}\n",
                "page.js": 'import{a,b as c}from"./low.js";a();const part=a+c;'
                "export const styled=1;export const page=part+a;",
            },
        )
        self.assertEqual(places["texts.js"], "page.js")

    def test_preloading(self) -> None:
        """An import on demand fetches at once what the script needs, but for what is there."""
        files = makeAssets()
        (shell,) = [name for name in files if name.startswith("assets/shell.")]
        first, text = needed(files, shell), files[shell].decode()
        imports = re.findall(r'Promise\.all\(\[((?:import\("[^"]*"\),?)+)\]\)', text)
        self.assertGreater(len(imports), 3)
        for each in imports:
            page, *more = [f"assets/{name}" for name in re.findall(r'"\./([^"]*)"', each)]
            self.assertEqual(set(more), needed(files, page) - first - {page})

    def test_joinedNames(self) -> None:
        """Two scripts that become one file must not give one name to two things."""
        for page, part, pair in (
            ("const a = 1;\n", "const a = 2;\n", "page.js.* a.*part.js"),
            ("function a() {}\n", 'import { a } from "./low.js";\n', "page.js.* a.*low.js"),
            (
                'import { b as a } from "./part.js";\n',
                "export const b = 1;\n",
                "page.js.* b.*part.js",
            ),
        ):
            scripts = {
                "app.js": 'import "./low.js";\nimport("./page.js");\n',
                "low.js": "export const a = 1;\n",
                "page.js": 'import "./part.js";\n' + page,
                "part.js": part,
            }
            with self.assertRaisesRegex(ValueError, pair):
                joinScripts(scripts)

    @long("starts node")
    @needs("node")
    def test_joinedProgram(self) -> None:
        """Each served script is a module: no name is defined or exported twice, or missing."""
        files = {name: body.decode() for name, body in makeAssets().items() if name.endswith(".js")}
        exports = subprocess.run(
            ["node", "--expose-internals", "-e", _EXPORTS],
            input=json.dumps(files).encode(),
            capture_output=True,
            check=True,
        ).stdout
        found = {name.removeprefix("assets/"): names for name, names in json.loads(exports).items()}
        for name, text in files.items():
            for names, file in re.findall(r'import\s*\{([^}]*)\}\s*from\s*"\./([\w.-]+)"', text):
                for each in names.split(","):
                    self.assertIn(each.partition(" as ")[0].strip(), found[file], name)

    def test_fontLicence(self) -> None:
        """The page about the console leads to the licence of the font."""
        files = makeAssets()
        (licence,) = [name for name in files if name.startswith("assets/inter.")]
        self.assertIn(b"SIL OPEN FONT LICENSE", files[licence].upper())
        (about,) = [body for name, body in files.items() if "/about." in name]
        self.assertIn(f'"./{licence}"'.encode(), about)

    def test_libraries(self) -> None:
        """Libraries are as they were published, and each has its licence."""
        hashes = {}
        for library in readLibraries():
            self.assertIn(library["license"], ("MIT", "Apache-2.0"))
            self.assertIn(f"{library['name']}.LICENSE", library["files"])
            for name, described in library["files"].items():
                hashes[name] = described["sha256"]
        found = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in VENDOR.iterdir()
            if path.suffix != ".json"
        }
        self.assertEqual(found, hashes)

    def test_size(self) -> None:
        """All files, and those to sign in and to see objects with, are within their budgets."""
        files = makeAssets()
        fonts = [body for name, body in files.items() if name.endswith(".woff2")]
        self.assertEqual(len(fonts), 2)
        self.assertLess(sum(map(len, fonts)), FONT_BYTES)
        # No page loads the texts of licences; About has links to them.
        apart = (".woff2", ".txt")
        files = {name: body for name, body in files.items() if not name.endswith(apart)}
        compressed = {name: len(brotli.compress(body)) for name, body in files.items()}
        self.assertLess(sum(compressed.values()), ALL_BYTES)
        found = re.findall(r'(?:href|src)="\./(.*?)"', files["index.html"].decode())
        first = [name for name in found if name in files]
        modules = [name for name in first if name.endswith(".js")]
        page = {"index.html", *first, *needed(files, *modules)}
        self.assertLess(sum(compressed[name] for name in page), SIGN_IN_BYTES)
        parts = re.compile(r"assets/(shell|buckets)\.\w+\.js")
        page |= needed(files, *filter(parts.fullmatch, compressed))
        page |= set(filter(re.compile(r"assets/pages\.\w+\.css").fullmatch, compressed))
        self.assertLess(sum(compressed[name] for name in page), OBJECTS_BYTES)

    def test_trusted(self) -> None:
        """No source makes HTML or code of text, and none names another site."""
        forbidden = re.compile(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
            r"|DOMParser|srcdoc|javascript:|https?://(?!www\.w3\.org/2000/svg)",
            re.IGNORECASE,
        )
        for path in SOURCES.iterdir():
            if path.is_file():
                self.assertEqual(forbidden.findall(path.read_text()), [], path.name)

    def test_texts(self) -> None:
        """Each text that a page says is in the table, once, and each of the table is said."""
        scripts = [path.read_text() for path in SOURCES.glob("*.js")]
        defined = [name for text in scripts for name in re.findall(r'^  "([\w.]+)": "', text, re.M)]
        self.assertEqual(len(defined), len(set(defined)))
        for text in scripts:
            for name in re.findall(r'\bsay\("([\w.]+)"[,)]', text):
                self.assertIn(name, defined)
        # The navigation is drawn before the modules of the pages are fetched.
        shell = (SOURCES / "shell.js").read_text()
        pages = re.findall(r'^  \["(\w+)", "(\w+)", "\w+", \(\) => import', shell, re.M)
        self.assertGreater(len(pages), 5)
        first = (SOURCES / "messages.js").read_text()
        icons = (SOURCES / "icons.js").read_text()
        for name, icon in pages:
            self.assertIn(f'"nav.{name}": "', first)
            self.assertIn(f"\n  {icon}: ", icons)
        joined = "\n".join(scripts)
        # Names that are put together begin with a group.
        groups = tuple(re.findall(r'\bsay\("([\w.]+\.)" \+', joined))
        unused = [
            name
            for name in defined
            if joined.count(f'"{name}"') < 2 and not name.startswith(groups)
        ]
        self.assertEqual(unused, [])
