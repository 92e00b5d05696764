"""The context of Great Expectations, which each validation writes into LOCKSTEP_HOME.

With LOCKSTEP_HOME in the environment, `gx.get_context(mode="file", context_root_dir=".lockstep/expectations/gx")` opens
the context of the last validation in a notebook. Results and pages are below LOCKSTEP_HOME too. Analytics are off.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

os.environ["GX_ANALYTICS_ENABLED"] = "false"

import great_expectations as gx
from great_expectations.data_context import FileDataContext

from expectations import rows  # noqa: F401  # suites name its expectation
from expectations.files import files
from expectations.suites import Expectation
from streaming_core.regression.home import Home


def site_folder(home: Home) -> Path:
    """The folder of the pages."""
    return home.reports / "data_docs"


def context_folder(home: Home) -> Path:
    """The folder of the context."""
    return home.root / "expectations" / "gx"


def new_context(home: Home, sets: Mapping[str, Sequence[Expectation]]) -> FileDataContext:
    """Write the context anew, and open it.

    Args:
        home: Where the context, results and pages are.
        sets: The expectations of each data set, by name.
    """
    root = context_folder(home)
    shutil.rmtree(root, ignore_errors=True)
    for needed in (root.with_name("results"), site_folder(home)):
        needed.mkdir(parents=True, exist_ok=True)
    for path, text in files(sets).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return gx.get_context(mode="file", context_root_dir=root, runtime_environment={"LOCKSTEP_HOME": str(home.root)})
