"""The first page of the Data Docs: the runs, each with a way to its own page, and what became of every data set in
them, newest first.

Pages of suites stay, whichever of them the last run had: results of older runs lead there.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from great_expectations.render.renderer.site_builder import DefaultSiteIndexBuilder

from expectations.data_docs.views import environment

SHOWN_RUNS = 30


class IndexBuilder(DefaultSiteIndexBuilder):
    """Writes index.html with our template, and removes nothing."""

    def build(self, skip_and_clean_missing: bool = False, build_index: bool = True) -> tuple[Any, OrderedDict | None]:
        if not build_index:
            return None, None
        links: OrderedDict = OrderedDict()
        self._add_expectations_to_index_links(links, skip_and_clean_missing=False)
        self._add_validations_to_index_links(links, self._build_validation_and_profiling_result_site_keys(False))
        suites = {link["expectation_suite_name"]: link["filepath"] for link in links.get("expectations_links", [])}
        runs: dict[str, dict[str, dict]] = {}
        for link in links.get("validations_links", []):
            runs.setdefault(link["run_name"], {})[link["expectation_suite_name"]] = link
        named = sorted({name for found in runs.values() for name in found})
        shown = sorted(runs, reverse=True)[:SHOWN_RUNS]
        page = environment().get_template("index_page.j2")
        text = page.render(runs={run: runs[run] for run in shown}, names=named, suites=suites)
        return self.target_store.write_index_page(text), links
