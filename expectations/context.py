"""The Great Expectations context. Results and pages are below LOCKSTEP_HOME; analytics are off."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["GX_ANALYTICS_ENABLED"] = "false"

import great_expectations as gx
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults

from streaming_core.regression.home import Home

SITE = "lockstep"
VIEWS = "expectations.data_docs.views"


def site_folder(home: Home) -> Path:
    """The folder of the pages."""
    return home.reports / "data_docs"


def open_context(home: Home) -> EphemeralDataContext:
    """A context with suites from code, and results in LOCKSTEP_HOME/expectations/results."""
    results, site = home.root / "expectations" / "results", site_folder(home)
    for folder in (results, site):
        folder.mkdir(parents=True, exist_ok=True)
    defaults = InMemoryStoreBackendDefaults()
    defaults.stores[defaults.validation_results_store_name] = {
        "class_name": "ValidationResultsStore",
        "store_backend": _folder(results),
    }
    page = {"view": {"module_name": VIEWS, "class_name": "PageView"}}
    defaults.data_docs_sites = {
        SITE: {
            "class_name": "SiteBuilder",
            "show_how_to_buttons": False,
            "store_backend": _folder(site),
            "site_section_builders": {
                "validations": page | {"renderer": {"module_name": VIEWS, "class_name": "ResultRenderer"}},
                "expectations": page,
                "profiling": "none",
            },
        }
    }
    config = DataContextConfig(store_backend_defaults=defaults, analytics_enabled=False)
    context = gx.get_context(mode="ephemeral", project_config=config)
    context.variables.progress_bars = {"globally": False}
    return context


def _folder(path: Path) -> dict:
    return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(path)}
