"""How Sphinx builds these pages into a site: C{sphinx-build -W docs build/site}."""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from storagegate.version import __version__  # noqa: E402

project = "storagegate"
release = version = __version__
html_title = f"storagegate {__version__}"
html_theme = "alabaster"
html_theme_options = {
    "description": "S3, HTTP, gRPC and a gateway in one install",
    "fixed_sidebar": True,
}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_static_path: list[str] = []
exclude_patterns = ["build"]
man_pages = [("commands", "storagegate", "the daemon and its commands", [], 1)]
highlight_language = "none"
# Files of haproxy and Caddy are shown as they are.
suppress_warnings = ["misc.highlighting_failure"]


def listPages(app: Sphinx, name: str, source: list[str]) -> None:
    """Make the contents of the site: the pages that the index links, in its order."""
    if name == "index":
        pages = re.findall(r"<(\w+)\.rst>`_", source[0])
        source[0] += "\n\n.. toctree::\n   :hidden:\n\n   " + "\n   ".join(pages) + "\n"


def linkPages(app: Sphinx, document: nodes.document) -> None:
    """Let a link to the source of a page lead to the page."""
    for reference in document.findall(nodes.reference):
        target, hash_, anchor = reference.get("refuri", "").partition("#")
        if target.endswith(".rst") and "/" not in target:
            reference["refuri"] = target.removesuffix(".rst") + ".html" + hash_ + anchor


def setup(app: Sphinx) -> None:
    """Have the pages listed and their links rewritten."""
    app.connect("source-read", listPages)
    app.connect("doctree-read", linkPages)
