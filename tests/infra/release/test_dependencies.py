"""pyproject.toml names every package that streaming_core imports. The wheel installs these and no others."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from infra.checkout import ROOT

# Only `lockstep find` needs it, which runs from the checkout.
CHECKOUT = {"streaming_core/search/draws.py: hypothesis"}


@pytest.mark.slow
def test_the_wheel_depends_on_all_that_streaming_core_imports():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"]
    declared = {re.match(r"[\w-]+", line)[0].lower() for line in lines}
    declared |= {"llvmlite", "pydantic-core"}  # numba and pydantic depend on exact versions of them
    distributions = packages_distributions()
    missing = {
        f"{path.relative_to(ROOT)}: {package}"
        for path in (ROOT / "streaming_core").rglob("*.py")
        for package in imports(path) - sys.stdlib_module_names - {"streaming_core"}
        if not declared & {name.lower().replace("_", "-") for name in distributions.get(package, ())}
    }
    assert missing == CHECKOUT


def imports(path):
    """The top-level packages that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                names.update(alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                names.add(module)
    return {name.partition(".")[0] for name in names}
