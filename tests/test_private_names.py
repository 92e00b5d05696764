"""Private names of Airflow, Spark, dbt and Great Expectations stay in one module each, which says why it needs them.

A name is private if the documentation of its tool does not describe it: the next release may change it without a word.
"""

import ast
import re
import subprocess
from typing import NamedTuple

import pytest

from infra.checkout import ROOT


class Tool(NamedTuple):
    """What is private of a tool.

    Attributes:
        public: the modules whose names are public. Those below another module of the tool are private.
        patterns: regular expressions of other private names, in Python, SQL and shell.
        adapter: the module that may use private names.
    """

    public: tuple[str, ...]
    patterns: tuple[str, ...]
    adapter: str


TOOLS = {
    "airflow": Tool(
        (
            "airflow.listeners",
            "airflow.plugins_manager",
            "airflow.providers",
            "airflow.sdk",
            "airflow.sdk.exceptions",
            "airflow.sdk.execution_time.hitl",
            "airflow.sdk.log",
            "airflow.sdk.observability",
            "airflow.triggers.base",
        ),
        (r"/proc/.*environ", r"_AIRFLOW_[A-Z]", r"airflow-db-not-allowed", r"fastapi_root_middlewares"),
        "infra/airflow/access.py",
    ),
    "pyspark": Tool(
        ("pyspark", "pyspark.errors", "pyspark.logger", "pyspark.sql", "pyspark.sql.streaming", "pyspark.storagelevel"),
        (r"\._(jvm|jsc|jdf|jconf|jsparkSession)\b",),
        "jobs/session.py",
    ),
    "dbt": Tool(
        ("dbt.cli.main",),
        (r"macro (spark|default)__",),
        "infra/history/marts.py",
    ),
    "great_expectations": Tool(
        (
            "great_expectations",
            "great_expectations.data_context",
            "great_expectations.exceptions",
            "great_expectations.expectations",
            "great_expectations.render",
        ),
        (),
        "expectations/declared.py",
    ),
}
# Every module below these is public, too.
WHOLE = ("airflow.providers", "pyspark.sql.streaming")


def files() -> list[str]:
    """The files of the product that run: neither tests nor text."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = (".md", ".json", ".txt", ".lock", ".svg", ".png", ".rs", ".yaml", ".yml")
    return [
        name
        for name in done.stdout.split()
        if not name.startswith(("tests/", "docs/"))
        and name[0] != "."
        and not name.endswith(texts)
        and (ROOT / name).is_file()
    ]


def imports(name: str) -> set[str]:
    """The modules that a file of Python imports from."""
    modules = set()
    for node in ast.walk(ast.parse((ROOT / name).read_text(), name)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
    return modules


def private_names(tool: str, name: str) -> list[str]:
    """The private names of a tool in a file."""
    about = TOOLS[tool]
    modules = imports(name) if name.endswith(".py") else set()
    names = [
        module
        for module in sorted(modules)
        if module.partition(".")[0] == tool
        and module not in about.public
        and not module.startswith(tuple(f"{package}." for package in WHOLE))
    ]
    try:
        text = (ROOT / name).read_text()
    except UnicodeDecodeError:
        return names
    return names + [match[0] for pattern in about.patterns for match in re.finditer(pattern, text)]


@pytest.mark.parametrize("tool", TOOLS)
def test_private_names_of_a_tool_stay_in_its_adapter(tool):
    about = TOOLS[tool]
    private = {name: names for name in files() if (names := private_names(tool, name))}
    assert {name: names for name, names in private.items() if name != about.adapter} == {}


@pytest.mark.parametrize("tool", [tool for tool, about in TOOLS.items() if private_names(tool, about.adapter)])
def test_adapter_says_why_it_needs_private_names(tool):
    docstring = ast.get_docstring(ast.parse((ROOT / TOOLS[tool].adapter).read_text())) or ""
    assert "private" in docstring


def test_private_names_are_seen():
    assert "airflow.api_fastapi.app" in private_names("airflow", "infra/airflow/access.py")
    assert private_names("pyspark", "jobs/session.py")
