"""
Check that every link within the site leads somewhere: C{python tools/checksite.py build/site}.

Prints each link that does not, and exits with 1 if there are any.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """
    The links and the anchors of a page.

    @ivar links: What C{href} and C{src} name.
    @ivar anchors: The ids of its elements.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names."""
        values = {name: value for name, value in attrs if value}
        self.links.update(values[name] for name in ("href", "src") if name in values)
        self.anchors.update(values[name] for name in ("id", "name") if name in values)


def broken(site: Path) -> list[str]:
    """Return the links that lead nowhere, each after its page."""
    pages = {path.name: Page(path.read_text("utf-8")) for path in site.glob("*.html")}
    found = []
    for name, page in sorted(pages.items()):
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = unquote(parts.path) or name
            exists = (site / target).exists()
            if exists and parts.fragment and target in pages:
                exists = unquote(parts.fragment) in pages[target].anchors
            if not exists:
                found.append(f"{name}: {link}")
    return found


if __name__ == "__main__":
    lines = broken(Path(sys.argv[1]))
    print("\n".join(lines))
    raise SystemExit(1 if lines else 0)
