"""The context of Great Expectations, from the files in `expectations/gx`.

`gx.get_context(mode="file", context_root_dir="expectations/gx")`, with LOCKSTEP_HOME in the environment, opens the same
context in a notebook. A validation opens a temporary copy:

- Great Expectations writes into the folder of a context, and a run writes nothing into the checkout.
- If an application is new or has changed since `make docs`, the copy has the suite that follows from the application
  now. A run says so; a test of the checkout fails until the file is current.

Results and pages are below LOCKSTEP_HOME. Analytics are off.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ["GX_ANALYTICS_ENABLED"] = "false"

import great_expectations as gx
from great_expectations.data_context import FileDataContext

from expectations import rows  # noqa: F401  # suites name its expectation
from expectations.files import CONFIG, CONTEXT, FIXED, config, of_data_set
from expectations.suites import Expectation
from streaming_core.regression.home import Home


def site_folder(home: Home) -> Path:
    """The folder of the pages."""
    return home.reports / "data_docs"


@contextmanager
def open_context(home: Home, suites: dict[str, Sequence[Expectation]]) -> Iterator[tuple[FileDataContext, list[str]]]:
    """Open a copy of the context.

    Args:
        home: Where results and pages are.
        suites: The expectations of the applications of a run, by the name of their suite.

    Yields:
        The context, and the names of the suites whose files in the checkout are missing or not current.
    """
    for needed in (home.root / "expectations" / "results", site_folder(home)):
        needed.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="lockstep-expectations-") as folder:
        root = Path(folder) / "gx"
        shutil.copytree(CONTEXT, root)
        stale = []
        for name, expectations in suites.items():
            for relative, text in of_data_set(name, expectations).items():
                file = root / relative
                if not file.is_file() or file.read_text() != text:
                    stale += [name] * (name not in stale)
                    file.write_text(text)
        if stale:
            names = {path.stem for path in (root / "expectations").glob("*.json")} | FIXED.keys()
            (root / CONFIG).write_text(config(dict.fromkeys(names)))
        yield (
            gx.get_context(mode="file", context_root_dir=root, runtime_environment={"LOCKSTEP_HOME": str(home.root)}),
            stale,
        )
