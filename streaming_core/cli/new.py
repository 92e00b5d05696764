"""Write a new application from a template: a small one that works, with data, as the start of your own."""

from __future__ import annotations

import keyword
from collections.abc import Collection
from pathlib import Path

from streaming_core.apps import registry
from streaming_core.errors import BadInput, refusal, unknown

TEMPLATES = Path(__file__).parent / "templates"
DEFAULT = "words"
APPS = Path(registry.__file__).parent
TESTS = APPS.parents[1] / "tests" / "streaming_core" / "apps"


def templates() -> list[str]:
    """Return the names of the templates, the default first."""
    names = {path.name.partition(".")[0] for path in TEMPLATES.glob("*.py.template")}
    return [DEFAULT, *sorted(names - {DEFAULT})]


def new(name: str, apps: Path = APPS, tests: Path = TESTS, template: str = DEFAULT) -> list[Path]:
    """Write the application `name`, files of events and, where the template has one and in a checkout, a test.

    Args:
        name: The name of the application.
        apps: The folder of the application.
        tests: The folder of its test.
        template: The name of the template, one of `templates()`.

    Returns:
        The paths of the files.

    Raises:
        BadInput: The name is invalid, reserved, or in use, or the template is unknown.
        CommandFailed: The disk is full, or fails.
    """
    check_name("application", name, {"registry", registry.ALL})
    if template not in templates():
        raise BadInput(unknown("template", template, templates()))
    files = {apps / f"{name}.py": TEMPLATES / f"{template}.py.template"}
    files |= {
        apps / f"{name}{data.name.removeprefix(template)}": data for data in sorted(TEMPLATES.glob(f"{template}.*csv"))
    }
    test = TEMPLATES / f"{template}.test.template"
    if tests.is_dir() and test.exists():
        files[tests / f"test_{name}.py"] = test
    return write_files({path: source.read_text() for path, source in files.items()}, name)


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
