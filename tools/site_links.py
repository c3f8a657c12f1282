"""Checks that every link, anchor and picture of the built site leads somewhere: ``python tools/site_links.py FOLDER``.

Sphinx checks references between pages, but not what a theme or a page's own HTML links to, nor whether a page that it
was to write is there.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors, self.links = {""}, set[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


page = cache(Page)


def broken(folder: Path) -> list[str]:
    """Links that lead nowhere, as 'page: link'."""
    out = []
    for path in sorted(p for p in folder.rglob("*.html") if "_static" not in p.parts):  # the theme's own are templates
        for link in sorted(page(path).links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            is_page = target.suffix == ".html"
            if not target.is_file() or (is_page and unquote(parts.fragment) not in page(target).anchors):
                out.append(f"{path.relative_to(folder)}: {link}")
    return out


def main() -> int:
    """Prints them; 1 if there are any."""
    folder = Path(sys.argv[1]).resolve()
    found = broken(folder)
    for line in found[:50]:
        print(line)
    print(f"{page.cache_info().currsize} pages, {len(found)} broken links")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
