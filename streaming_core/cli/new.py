"""A new application: a small one that works, to be changed into what is wanted, and a test of it."""

from __future__ import annotations

import keyword
from pathlib import Path

from streaming_core.apps import registry
from streaming_core.errors import BadInput, refusal

HERE = Path(__file__).parent
APPS = Path(registry.__file__).parent
TESTS = APPS.parents[1] / "tests" / "unit" / "apps"


def new(name: str, apps: Path = APPS, tests: Path = TESTS) -> list[Path]:
    """Writes the application `name` and, in a checkout, its test; where they are.

    Raises:
        BadInput: no name for an application, or one that is taken.
        CommandFailed: the disk is full, or fails.
    """
    if not registry.NAME.fullmatch(name) or keyword.iskeyword(name) or name in ("registry", registry.ALL):
        raise BadInput(f"{name!r} is no name for an application: small letters, digits and _, a letter first")
    wanted = {apps / f"{name}.py": "application.template"}
    if tests.is_dir():
        wanted[tests / f"test_{name}.py"] = "test.template"
    for path in wanted:
        if path.exists():
            raise BadInput(f"{path} is there already")
    for path, template in wanted.items():
        try:
            path.write_text((HERE / template).read_text().replace("NAME", name))
        except OSError as error:
            raise refusal(error, f"{path} cannot be written") from None
    return list(wanted)
