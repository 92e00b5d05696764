"""Write a new application: a small one that works, with data and a test, as the start of your own."""

from __future__ import annotations

import keyword
from collections.abc import Collection
from pathlib import Path

from streaming_core.apps import registry
from streaming_core.errors import BadInput, refusal

HERE = Path(__file__).parent
APPS = Path(registry.__file__).parent
TESTS = APPS.parents[1] / "tests" / "streaming_core" / "apps"


def new(name: str, apps: Path = APPS, tests: Path = TESTS) -> list[Path]:
    """Write the application `name`, a file of events and, in a checkout, its test.

    Returns:
        The paths of the files.

    Raises:
        BadInput: The name is invalid, reserved, or in use.
        CommandFailed: The disk is full, or fails.
    """
    check_name("application", name, {"registry", registry.ALL})
    templates = {apps / f"{name}.py": "application.template", apps / f"{name}.csv": "data.template"}
    if tests.is_dir():
        templates[tests / f"test_{name}.py"] = "test.template"
    return write_files({path: (HERE / template).read_text() for path, template in templates.items()}, name)


def check_name(what: str, name: str, reserved: Collection[str]) -> None:
    """Raise BadInput unless a new thing, an application or an engine, can have this name."""
    if not registry.NAME.fullmatch(name):
        rule = "start with a small letter, then use small letters, digits and _ (at most 31)"
        raise BadInput(f"invalid {what} name {name!r}; {rule}")
    if keyword.iskeyword(name) or name in reserved:
        raise BadInput(f"the {what} name {name!r} is reserved; choose another one")


def write_files(templates: dict[Path, str], name: str) -> list[Path]:
    """Write new files, with `name` in the place of NAME; returns their paths.

    Raises:
        BadInput: One of them exists already; then none is written.
        CommandFailed: The disk is full, or fails.
    """
    for path in templates:
        if path.exists():
            raise BadInput(f"{path} already exists; choose another name")
    for path, template in templates.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(template.replace("NAME", name))
        except OSError as error:
            raise refusal(error, f"cannot write {path}") from None
    return list(templates)
