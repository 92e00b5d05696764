"""The files of a context of Great Expectations: configuration, suites, validation definitions, the Checkpoint.

They follow from the declarations in `expectations/suites`, in the form in which Great Expectations writes them. Each
data set has an asset, a suite and a validation definition, all with its name. One Checkpoint, `run`, has all validation
definitions. Ids follow from names and content, so that the same declaration is the same file.

This module does not import Great Expectations, because that takes seconds.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from expectations.suites import Expectation, cells, invariants, outputs, samples, verdicts, violations
from streaming_core.apps import registry

CONFIG = "great_expectations.yml"
SOURCE, BATCH, SITE, CHECKPOINT = "spark", "run", "lockstep", "run"
# The data sets that each run has.
FIXED: dict[str, Sequence[Expectation]] = {
    "verdicts": verdicts.EXPECTATIONS,
    "violations": violations.EXPECTATIONS,
    "cells": cells.EXPECTATIONS,
    "samples": samples.EXPECTATIONS,
    "invariants": invariants.EXPECTATIONS,
    "columns": outputs.COLUMNS,
}
_IDS = uuid.UUID("6a9c1f0e-3d7b-5b52-9c55-1d0a7b8e4f21")
_PAGES = "expectations.data_docs.pages"


def declared() -> dict[str, Sequence[Expectation]]:
    """The expectations of every data set, by name: the fixed ones, and the outputs of each application."""
    apps = [registry.load(name) for name in registry.names()]
    return FIXED | {outputs.suite_name(app.name): outputs.expectations_of(app) for app in apps}


def files(sets: Mapping[str, Sequence[Expectation]]) -> dict[str, str]:
    """Path and text of each file of the context of these data sets."""
    texts = {CONFIG: config(sets)}
    for name, expectations in sets.items():
        texts |= of_data_set(name, expectations)
    checkpoint = {
        "name": CHECKPOINT,
        "id": _id("checkpoint", CHECKPOINT),
        "validation_definitions": [{"name": name, "id": _id("validation definition", name)} for name in sets],
        "actions": [{"name": "Data Docs", "site_names": [SITE], "type": "update_data_docs"}],
        # Every row that breaks a rule, as far as the query selects it.
        "result_format": "COMPLETE",
    }
    return texts | _file("checkpoints", checkpoint)


def of_data_set(name: str, expectations: Sequence[Expectation]) -> dict[str, str]:
    """Path and text of the suite and the validation definition of a data set."""
    suite: dict[str, Any] = {
        "name": name,
        "id": _id("suite", name),
        "notes": None,
        "meta": {},
        "expectations": [_stored(name, expectation) for expectation in expectations],
    }
    definition = {
        "name": name,
        "id": _id("validation definition", name),
        "suite": {"name": name, "id": suite["id"]},
        "data": {
            "datasource": {"name": SOURCE, "id": _id("data source", SOURCE)},
            "asset": {"name": name, "id": _id("asset", name)},
            "batch_definition": {"name": BATCH, "id": _id("batch definition", name)},
        },
    }
    return _file("expectations", suite) | _file("validation_definitions", definition)


def config(names: Mapping[str, object]) -> str:
    """The text of great_expectations.yml, with an asset for each data set."""
    page = {"view": {"module_name": _PAGES, "class_name": "View"}}
    stores = {
        "expectations_store": ("ExpectationsStore", "expectations/"),
        "validation_definition_store": ("ValidationDefinitionStore", "validation_definitions/"),
        "checkpoint_store": ("CheckpointStore", "checkpoints/"),
        "validation_results_store": ("ValidationResultsStore", "${LOCKSTEP_HOME}/expectations/results"),
    }
    content = {
        "config_version": 4.0,
        "analytics_enabled": False,
        "progress_bars": {"globally": False},
        "plugins_directory": None,
        "config_variables_file_path": None,
        "stores": {name: {"class_name": kind, "store_backend": _folder(path)} for name, (kind, path) in stores.items()},
        "expectations_store_name": "expectations_store",
        "checkpoint_store_name": "checkpoint_store",
        "validation_results_store_name": "validation_results_store",
        "data_docs_sites": {
            SITE: {
                "class_name": "SiteBuilder",
                "show_how_to_buttons": False,
                "store_backend": _folder("${LOCKSTEP_HOME}/reports/data_docs"),
                "site_index_builder": {"module_name": _PAGES, "class_name": "NoIndex"},
                "site_section_builders": {
                    "validations": page | {"renderer": {"module_name": _PAGES, "class_name": "Results"}},
                    "expectations": page | {"renderer": {"module_name": _PAGES, "class_name": "Suites"}},
                    "profiling": "none",
                },
            }
        },
        "fluent_datasources": {
            SOURCE: {
                "type": "spark",
                "id": _id("data source", SOURCE),
                "persist": False,
                "assets": {
                    name: {
                        "type": "dataframe",
                        "id": _id("asset", name),
                        "batch_definitions": {BATCH: {"id": _id("batch definition", name), "partitioner": None}},
                    }
                    for name in sorted(names)
                },
            }
        },
    }
    head = (
        "# The configuration of Great Expectations, for gx.get_context(mode='file'), with LOCKSTEP_HOME in the\n"
        "# environment. Each validation writes it anew (expectations/context.py).\n"
    )
    return head + yaml.safe_dump(content, sort_keys=False, width=120)


def _stored(suite: str, expectation: Expectation) -> dict[str, Any]:
    about = {"description": expectation["description"]} if expectation["description"] else {}
    return {
        "id": _id("expectation", suite, json.dumps(expectation, sort_keys=True)),
        "type": expectation["type"],
        "kwargs": expectation["kwargs"],
        "meta": {},
        "severity": expectation["severity"],
        **about,
    }


def _file(folder: str, content: dict[str, Any]) -> dict[str, str]:
    return {f"{folder}/{content['name']}.json": json.dumps(content, indent=2, sort_keys=True) + "\n"}


def _folder(path: str) -> dict[str, str]:
    return {"class_name": "TupleFilesystemStoreBackend", "base_directory": path}


def _id(*parts: str) -> str:
    return str(uuid.uuid5(_IDS, "/".join(parts)))
