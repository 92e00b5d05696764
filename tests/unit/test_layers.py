"""Dependencies point one way: dags -> jobs, expectations -> streaming_core."""

import ast
from pathlib import Path

import pytest

from streaming_core import generator

ROOT = Path(__file__).parents[2]
# folder -> top-level modules it may not import
FORBIDDEN = {
    "streaming_core": {"airflow", "pyspark", "great_expectations", "dbt", "dags", "jobs", "expectations", "infra"},
    "jobs": {"airflow", "great_expectations", "dbt", "dags", "expectations", "infra"},
    "expectations": {"airflow", "dags"},
}
INSIDE = {
    "streaming_core/api": {
        "streaming_core.oracle",
        "streaming_core.engine",
        "streaming_core.cli",
        "streaming_core.apps",
    },
    "streaming_core/oracle": {
        "streaming_core.engine",
        "streaming_core._runtime",
        "streaming_core.api.kernels",
        "streaming_core.api.dialect",
        "streaming_core.cli",
    },
    "streaming_core/apps": {"streaming_core.oracle", "streaming_core.engine", "streaming_core.cli"},
}


def imports(path: Path) -> set[str]:
    """Every module the file imports, wherever in the file, with the names imported from it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_no_folder_imports_what_is_above_it(folder):
    checked = files(folder)
    assert checked
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in checked
        for name in imports(path)
        if name.partition(".")[0] in FORBIDDEN[folder]
    ]
    assert not wrong


@pytest.mark.parametrize("folder", INSIDE)
def test_oracle_and_runtime_share_no_code(folder):
    checked = files(folder)
    assert checked
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in checked
        for name in imports(path)
        if any(name == banned or name.startswith(f"{banned}.") for banned in INSIDE[folder])
    ]
    assert not wrong


def test_only_dags_and_infra_import_airflow():
    wrong = [
        str(path.relative_to(ROOT))
        for folder in ("streaming_core", "jobs", "expectations", "dbt")
        for path in files(folder)
        if any(name.partition(".")[0] == "airflow" for name in imports(path))
    ]
    assert not wrong


def test_python_meets_rust_in_one_module():
    rust = ROOT / "streaming_core" / "runtime" / "src"
    meets = [p.name for p in sorted(rust.rglob("*.rs")) if "use pyo3" in p.read_text() or "pyo3::" in p.read_text()]
    assert meets == ["python.rs"]


def test_all_that_makes_events_is_in_the_address_of_a_workload():
    """Applications build upon the language and the generator's files alone: an edit changes the application's code
    digest or the generator's version, and no workload of before it is taken for one of after it."""
    for folder in ("streaming_core/apps", *(f"streaming_core/{name}" for name in generator.FILES)):
        for path in files(folder) or [ROOT / folder]:
            modules = {name.split(".")[1] for name in imports(path) if name.startswith("streaming_core.")}
            known = {"api", "errors", *(name.removesuffix(".py") for name in generator.FILES)}
            assert path.stem == "registry" or modules <= known, path
