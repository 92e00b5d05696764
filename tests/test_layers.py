"""Imports and processes point one way, over every folder, tests included; no imports form a cycle; what must be
independent is."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The house, from the ground up: a part may import those above its line in this list, itself, and nothing else of ours.
FLOORS = (
    "streaming_core.errors",
    "streaming_core.interruption",
    "streaming_core.process",
    "streaming_core.storage",
    "streaming_core.machine_code",
    "streaming_core.language",
    "streaming_core.api",
    "streaming_core.generator",
    "streaming_core.apps",
    "streaming_core.data",
    "streaming_core.planner",
    "streaming_core.kernels",
    "streaming_core.oracle",
    "streaming_core.engines",
    "streaming_core.run",
    "streaming_core.conformance",
    "streaming_core.cluster",
    "streaming_core.regression",
    "streaming_core.importing",
    "streaming_core.search",
    "streaming_core.bench",
    "streaming_core.cli",
    "jobs",
    "reports",
    "expectations",
    "infra.checkout",
    "infra.fields",
    "infra.lint",
    "infra.engines",
    "infra.hosts",
    "infra.spark",
    "infra.history",
    "infra.release",
    "infra.benchmarks",
    "infra.airflow",
    "infra.gate",
    "infra.profile",
    "infra.search",
    "infra.review",
    "infra.cli",
    "infra.reference",
    "dags",
)
# What a project leaves out (copier.yml).
LEFT_OUT = {"infra.benchmarks", "infra.release"}
# What is independent of each other although one stands below the other, and what a part has to know of the world.
APART = {
    "streaming_core.kernels": {"streaming_core.language.typed"},
    "streaming_core.oracle": {"streaming_core.kernels", "streaming_core._runtime"},
    "streaming_core.apps": {"streaming_core.storage"},
    "expectations": {"pyspark.sql.functions"},
    "reports": {"streaming_core.bench"},
}
OUTSIDE = {
    "airflow": ("dags", "infra.airflow"),
    "pyspark": ("jobs", "expectations", "infra.spark", "infra.history.marts"),
    "great_expectations": ("expectations",),
    "streaming_core._runtime": (
        "streaming_core.run",
        "streaming_core.search.laboratory",
        "streaming_core.cluster",
        "streaming_core.interruption",
        "streaming_core.data.rows",
    ),
}


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PRODUCT = ("streaming_core", "jobs", "expectations", "reports", "infra", "dags")
# External engines are programs of their own, in environments of their own.
ENGINES = ROOT / "infra" / "engines"
ALL_FILES = {
    module(path): path
    for folder in (*PRODUCT, "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.parent == ENGINES or not path.is_relative_to(ENGINES)
}
FILES = {name: path for name, path in ALL_FILES.items() if not name.startswith("tests.")}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> set[str]:
    """Every module the file imports, at its top or in a function: one of ours by its own name, others as written."""
    imported = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: import by the full name, not a relative one"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = names & (ALL_FILES.keys() | {"streaming_core._runtime"})
            imported |= modules
            if modules != names:
                imported.add(node.module)
    return imported


@cache
def programs(path: Path) -> set[str]:
    """Every module of ours that a string or a path in the file names, such as an argument of a process."""
    texts = set()

    def strings(node: ast.AST) -> list[str]:
        """The strings of a node, in their order. Those of a path and of a call are one text."""
        if isinstance(node, ast.Constant):
            parts = [node.value] if isinstance(node.value, str) else []
        else:
            parts = [text for child in ast.iter_child_nodes(node) for text in strings(child)]
        if isinstance(node, ast.Constant | ast.BinOp | ast.Call):
            texts.add("/".join(parts))
        return parts

    strings(tree(path))
    paths = {text.removesuffix(".py").replace("/", ".") for text in texts if text.endswith(".py")}
    return (paths | {text for text in texts if "." in text}) & FILES.keys()


def product_imports() -> dict[str, set[str]]:
    """Module of the product -> what it imports."""
    return {name: imports(path) for name, path in FILES.items()}


def within(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def part_of(name: str) -> str | None:
    return next((part for part in FLOORS if within(name, part)), None)


def test_every_file_belongs_to_a_layer():
    packages = {"streaming_core", "infra"}
    assert not [name for name in FILES if part_of(name) is None and name not in packages]
    assert not [part for part in FLOORS if part not in LEFT_OUT and not any(within(name, part) for name in FILES)]


@pytest.mark.parametrize("part", FLOORS)
def test_layer_imports_and_starts_only_layers_below_it(part):
    below = FLOORS[: FLOORS.index(part) + 1]
    wrong = [
        f"{name}: {used}"
        for name, modules in product_imports().items()
        if within(name, part)
        for used in modules | programs(FILES[name])
        if (used in FILES and part_of(used) not in below) or any(within(used, other) for other in APART.get(part, ()))
    ]
    assert not wrong


@pytest.mark.parametrize("package", OUTSIDE)
def test_foreign_package_is_imported_in_few_modules(package):
    known = [name for name, modules in product_imports().items() if any(within(used, package) for used in modules)]
    assert known
    assert not [name for name in known if not any(within(name, part) for part in OUTSIDE[package])]


def test_imports_have_no_cycle():
    graph = {name: imports(path) & ALL_FILES.keys() for name, path in ALL_FILES.items()}
    # Files that import nothing in the graph, and files that nothing in it imports, are on no cycle.
    while leaves := [name for name, modules in graph.items() if not modules & graph.keys()]:
        for name in leaves:
            del graph[name]
    while roots := [name for name in graph if not any(name in modules for modules in graph.values())]:
        for name in roots:
            del graph[name]
    assert not graph


def test_only_tests_import_tests():
    assert not [name for name, modules in product_imports().items() if any(within(used, "tests") for used in modules)]


def test_programs_of_processes_are_seen(tmp_path):
    file = tmp_path / "one.py"
    file.write_text('run([python, "-m", "dags.nightly"], ROOT / "dags" / "retention.py", "dags/speed_gate.py", "dags")')
    assert programs(file) == {"dags.nightly", "dags.retention", "dags.speed_gate"}


def test_no_dag_imports_or_starts_the_command_line():
    """Both use the rest of `infra`. A DAG that called the command line would close a cycle."""
    files = {path: path.read_text() for path in (ROOT / "dags").rglob("*.py")}
    assert [path for path, text in files.items() if re.search(r"infra[./]cli|bin/lockstep", text)] == []


def test_python_meets_rust_in_one_module():
    rust = ROOT / "streaming_core" / "runtime" / "src"
    meets = [p.name for p in sorted(rust.rglob("*.rs")) if "use pyo3" in p.read_text() or "pyo3::" in p.read_text()]
    assert meets == ["python.rs"]


def test_address_of_a_workload_covers_all_code_that_generates_events():
    """Applications build upon the language, the generator's files and other applications alone. An edit changes the
    application's code digest or the generator's version. So no earlier workload is taken for a later one."""
    known = ("streaming_core.api", "streaming_core.errors", "streaming_core.generator", "streaming_core.apps")
    wrong = [
        f"{name}: {used}"
        for name, modules in product_imports().items()
        if name != "streaming_core.apps.registry"
        and part_of(name) in ("streaming_core.apps", "streaming_core.generator")
        for used in modules
        if within(used, "streaming_core") and not any(within(used, part) for part in known)
    ]
    assert not wrong
