"""Write a new application: a small one that works, with a test, as the start of your own."""

from __future__ import annotations

import keyword
from pathlib import Path

from streaming_core.apps import registry
from streaming_core.errors import BadInput, refusal

HERE = Path(__file__).parent
APPS = Path(registry.__file__).parent
TESTS = APPS.parents[1] / "tests" / "unit" / "apps"


def new(name: str, apps: Path = APPS, tests: Path = TESTS) -> list[Path]:
    """Write the application `name` and, in a checkout, its test.

    Returns:
        The paths of the files.

    Raises:
        BadInput: The name is invalid, reserved, or in use.
        CommandFailed: The disk is full, or fails.
    """
    if not registry.NAME.fullmatch(name):
        rule = "start with a small letter, then use small letters, digits and _ (at most 31)"
        raise BadInput(f"invalid application name {name!r}; {rule}")
    if keyword.iskeyword(name) or name in ("registry", registry.ALL):
        raise BadInput(f"the application name {name!r} is reserved; choose another one")
    templates = {apps / f"{name}.py": "application.template"}
    if tests.is_dir():
        templates[tests / f"test_{name}.py"] = "test.template"
    for path in templates:
        if path.exists():
            raise BadInput(f"{path} already exists; choose another name")
    for path, template in templates.items():
        try:
            path.write_text((HERE / template).read_text().replace("NAME", name))
        except OSError as error:
            raise refusal(error, f"cannot write {path}") from None
    return list(templates)
