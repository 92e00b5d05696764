"""The resources that a browser loads for a page."""

import re
from html.parser import HTMLParser
from pathlib import Path

# Attributes that load a resource. Other attributes are links that a person follows.
LOADING = {"src", "srcset", "data", "poster", "background", "action", "formaction", "ping", "manifest"}
FOREIGN = re.compile(r"\s*([a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
OF_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?\s*([^"')\s]+)""")


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in LOADING or (name.endswith("href") and tag not in ("a", "area")):
                self.loads.append(value or "")
            elif name == "style":
                self.loads += OF_STYLES.findall(value or "")
        self._in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loads += OF_STYLES.findall(data)


def from_elsewhere(path: Path) -> list[str]:
    """Addresses of other hosts that a page, picture or style would load."""
    text = path.read_text()
    page = _Loads()
    page.feed(text)
    loads = page.loads if path.suffix in (".html", ".svg") else OF_STYLES.findall(text)
    return [address for address in loads if FOREIGN.match(address)]
