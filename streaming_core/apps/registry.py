"""The registry of applications: every other file of this package is one, and has the name of the application.

A folder of the package is a suite. Its applications load by name like the others, and belong to no matrix: a suite has
more applications than a nightly run can afford.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from pathlib import Path

from streaming_core.errors import BadInput, did_you_mean
from streaming_core.language import expectations
from streaming_core.language.acceptance import accept
from streaming_core.language.application import App
from streaming_core.language.code import code_digest

# The name of an application, or of an engine, in paths, SQL, pages and command lines.
NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
# Stands for every application in a list of names, so no application may have this name.
ALL = "all"
SUITES = ("nexmark",)

_HERE = Path(__file__).parent
_ELSEWHERE: dict[str, str] = {}  # module by name, of applications outside this package
_REPLACED: dict[str, App] = {}


def names(suite: str = "") -> list[str]:
    """Return the names of all applications outside suites, or of those of one suite, sorted, without an import."""
    files = (path.stem for path in (_HERE / suite).glob("*.py"))
    return sorted(name for name in files if name != "registry" and not name.startswith("_"))


def _modules() -> dict[str, str]:
    """The module of each application, by name."""
    modules = {name: f"{__package__}.{name}" for name in names()}
    for suite in SUITES:
        modules |= {name: f"{__package__}.{suite}.{name}" for name in names(suite)}
    return modules | _ELSEWHERE


def add(module: str) -> None:
    """Let `load` find an application outside this package, which only a suite runs; `names` leaves it out."""
    _ELSEWHERE[module.rpartition(".")[2]] = module


def elsewhere() -> list[str]:
    """Return the modules that `add` added."""
    return list(_ELSEWHERE.values())


def replace(app: App) -> None:
    """Let `load` return this application, such as a part of one, for its name."""
    _REPLACED[app.name] = app


def load(name: str) -> App:
    """Return an application by its name.

    Raises:
        BadInput: No application has that name, or its file cannot be imported or is incomplete. Or an operator breaks
            the language, or the expectations beside it cannot be read. The message has file, line and reason.
    """
    if name in _REPLACED:
        return _REPLACED[name]
    modules = _modules()
    if name not in modules:
        near = did_you_mean(name, modules)
        raise BadInput(f"unknown application {name!r}{near}; known: {', '.join([*names(), *SUITES])} (suite)")
    if not NAME.fullmatch(name) or name == ALL:
        rule = "start with a small letter, then use small letters, digits and _"
        raise BadInput(f"application {name}: invalid file name {name}.py; {rule}")
    module_name = modules[name]
    try:
        module = importlib.import_module(module_name)
    except BadInput as error:
        # The file names the application already.
        reason = str(error).removeprefix(f"app {name}: ")
        raise BadInput(f"application {name}: {_where(error, name)}: {reason}") from None
    except Exception as error:
        sys.modules.pop(module_name, None)
        raise BadInput(f"application {name}: {_where(error, name)}: {type(error).__name__}: {_line(error)}") from error
    app = getattr(module, "app", None)
    if not isinstance(app, App):
        raise BadInput(f"application {name}: {name}.py must define `app = App({name!r}, ...)`")
    if app.name != name:
        raise BadInput(f"application {name}: {name}.py says App({app.name!r}); write App({name!r})")
    app.check()
    try:
        accept(app, app.bind())
        code_digest(app)  # before a generator fills a cache
        expectations.read(expectations.path_of(app.file), app.outputs.fields)
    except BadInput as error:
        reason = str(error).removeprefix(f"app {name}: ")
        raise BadInput(f"application {name}: {reason}") from None
    return app


def kinds() -> dict[str, str]:
    """Return the kind of each application by its name. It skips files that `load` rejects."""
    kind_of = {}
    for name in names():
        try:
            kind_of[name] = load(name).kind
        except BadInput:
            continue
    return kind_of


def _where(error: Exception, name: str) -> str:
    """Return `file.py:line`: where in the application's file the import failed."""
    files = [_HERE / suite / f"{name}.py" for suite in ("", *SUITES)]
    own = str(next((file for file in files if file.exists()), files[0]))
    if isinstance(error, SyntaxError) and error.filename == own:
        return f"{name}.py:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    return f"{name}.py:{lines[-1]}" if lines else f"{name}.py"


def _line(error: Exception) -> str:
    """Return the message of an error as one line."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(message.split())
