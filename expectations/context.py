"""The context of Great Expectations, which each validation writes into LOCKSTEP_HOME, and its Checkpoint.

With LOCKSTEP_HOME in the environment, `gx.get_context(mode="file", context_root_dir=".lockstep/expectations/gx")` opens
the context of the last validation in a notebook. Results and pages are below LOCKSTEP_HOME too. Analytics are off.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["GX_ANALYTICS_ENABLED"] = "false"

import great_expectations as gx
from great_expectations.data_context import FileDataContext

from expectations.files import CHECKPOINT, files
from expectations.suites import DataSet, Expectation
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


class _Validation(gx.ValidationDefinition):
    """A validation definition that knows its data set.

    `Checkpoint.run` passes the same DataFrame and parameters to all validation definitions. Each data set of a run has
    its own.
    """

    data_set: Any  # a `DataSet`, which pydantic would copy

    class Config:
        fields = {"data_set": {"exclude": True}}  # it is not part of the stored definition

    def run(self, **options: Any) -> Any:
        """Run on the rows and the parameters of the data set; the other options are the Checkpoint's."""
        rows = {"dataframe": self.data_set.rows}
        return super().run(**options | {"batch_parameters": rows, "expectation_parameters": self.data_set.parameters})


def checkpoint(context: FileDataContext, sets: Sequence[DataSet]) -> gx.Checkpoint:
    """The Checkpoint of the context, ready to run on these data sets."""
    stored = context.checkpoints.get(CHECKPOINT)
    by_name = {definition.name: definition for definition in stored.validation_definitions}
    stored.validation_definitions = [
        _Validation(
            **{field: getattr(by_name[data_set.name], field) for field in ("name", "id", "data", "suite")},
            data_set=data_set,
        )
        for data_set in sets
    ]
    return stored
