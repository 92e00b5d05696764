"""Checks the accessibility of pages in a real browser by axe-core's rules for WCAG 2 A, AA and best practice."""

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path

from tests.support.browser import Browser

THEMES = ("light", "dark")
# The rules of best practice include landmarks, and headings in order.
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
# A theme changes colours only.
RULES = {"light": TAGS, "dark": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


def axe() -> str:
    """The source of axe-core, as its wheel vendors it."""
    spec = importlib.util.find_spec("axe_playwright_python")
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text()


def violations(browser: Browser, page: Path, theme: str = "light") -> list[str]:
    """The violations on a page: rule, element, and what is wrong. The browser shows the page in its theme."""
    browser.go(page.as_uri())
    browser.wait(f"document.readyState === 'complete' && location.pathname.endsWith({page.name!r})")
    return violations_here(browser, theme)


def violations_here(browser: Browser, theme: str = "light") -> list[str]:
    """The violations on the page that the browser shows."""
    browser.ask("document.querySelectorAll('details').forEach(e => e.open = true)")
    browser.ask(f"{axe()}; true")
    options = json.dumps({"runOnly": RULES[theme], "resultTypes": ["violations"]})
    script = (
        f"axe.run(document, {options}).then(r => JSON.stringify(r.violations.flatMap(v => v.nodes.slice(0, 3)"
        ".map(n => `${v.id}: ${n.html.slice(0, 160)}: ${n.failureSummary.slice(0, 200)}`))))"
    )
    return json.loads(browser.ask(script))


def violations_of_all(pages: Iterable[Path], theme: str) -> dict[Path, list[str]]:
    """The violations of each page that has any, in one theme."""
    with Browser() as browser:
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        by_page = {page: violations(browser, page, theme) for page in pages}
    return {page: wrong for page, wrong in by_page.items() if wrong}
