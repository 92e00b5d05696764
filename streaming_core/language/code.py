"""The code of an application: everything that its functions can see, as one digest.

Addresses of workloads, oracles and machine code contain it. It follows references, not files: from the declaration to
its functions, and on from each function. A function counts with its text, its defaults, its closure and the values of
its global names. A helper counts like a function of the application, wherever it was imported from. So does a value
that an import computed, from the environment or a file for example. A module that a function names counts with all its
names.

- An installed package counts by name and version, and the language by LANGUAGE. The standard library counts by name
  only, because hosts with another Python must compute the same digest.
- An edit of a line of a function changes the digest, even an edit of a comment. An edit elsewhere does so if it changes
  a value.
- A value that cannot be followed is refused, such as an open file. So is a function that reads a file or the
  environment when it is called, because its text does not tell what it will read.
"""

from __future__ import annotations

import copyreg
import dis
import hashlib
import importlib.util
import itertools
import linecache
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import numpy as np

from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.language.source import place

# Part of every digest. Raise it when the meaning of the same operator source changes.
LANGUAGE = 3

_OURS = __name__.partition(".")[0]
_FOLLOWED = (f"{_OURS}.apps.", f"{_OURS}.generator.", f"{_OURS}.bench.papers.")  # unlike the rest of Lockstep
_VALUES = (type(None), bool, int, float, complex, str)
# Parts of a declaration that say where it stands, or what it is for.
_PROSE = {"file", "_module", "where", "doc", "__doc__", "reads", "profiles", "properties"}
# Names that read what no text tells: built-in functions, attributes of any object, and functions of NumPy.
_BUILTINS = {"__import__", "eval", "exec", "globals", "input", "open"}
_READERS = {"environ", "environb", "getenv", "import_module", "read_bytes", "read_csv", "read_parquet", "read_text"}
_IMPORT, _GLOBAL = dis.opmap["IMPORT_NAME"], dis.opmap["LOAD_GLOBAL"]
_NUMPY = {"fromfile", "genfromtxt", "load", "loadtxt", "memmap"}


@lru_cache(256)
def code_digest(app: App) -> str:
    """First 16 hex digits over the version of the language, and all that the application's functions can see.

    Loading an application computes it, before generators run: what they keep in caches is no part of it.

    Raises:
        BadInput: A function sees something that cannot be followed; the line says where.
    """
    return _Objects(app.name).digest([LANGUAGE, app])[:16]


class _Objects:
    """Objects in the order in which references lead to them. Each has a number, which stands for it in the digest."""

    def __init__(self, app: str, *known: Any):
        self._app, self._where = app, ""
        # Objects that live keep their ids.
        self._known = {id(value): (number, value) for number, value in enumerate(known)}
        self._waiting: list[tuple[Any, str]] = []

    def digest(self, value: Any) -> str:
        """Return the digest of an object and of everything that it refers to."""
        content = hashlib.sha256(repr(self._plain(value)).encode())
        for item, where in self._waiting:  # it grows meanwhile
            self._where = where
            content.update(repr(self._parts(item)).encode() + b"\n")
        return content.hexdigest()

    def _plain(self, value: Any, name: str = "") -> Any:
        """Return something with an unambiguous `repr`: the value itself, or a list with the number of the object."""
        if type(value) in _VALUES:
            return value
        if type(value) is bytes:
            return value if len(value) < 64 else [hashlib.sha256(value).hexdigest()]
        if type(value) is tuple:
            return tuple(self._plain(item, name) for item in value)
        if id(value) not in self._known:
            self._known[id(value)] = len(self._known), value
            self._waiting.append((value, f"{self._where}: {name}" if name else self._where))
        return [self._known[id(value)][0]]

    def _named(self, values: Iterable[tuple[Any, Any]]) -> list:
        return [(self._plain(name), self._plain(value, str(name))) for name, value in values]

    def _parts(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            return [self._plain(item) for item in value]
        if kind in (dict, MappingProxyType):
            return "dict", self._named(value.items())
        if kind in (set, frozenset):
            return "set", sorted(_Objects(self._app, value).digest(item) for item in value)
        if isinstance(value, ModuleType):
            return self._module(value)
        if isinstance(value, FunctionType):
            return self._function(value)
        return self._class(value) if isinstance(value, type) else self._instance(value)

    def _module(self, module: ModuleType) -> Any:
        name, file = module.__name__, getattr(module, "__file__", None) or ""
        if (version := _version(name)) is not None:
            return name, version
        if file and not file.endswith(".py"):  # machine code
            return name, self._plain(Path(file).read_bytes())
        # Other applications may have imported more modules of a package: those that a function names count (_inside).
        inner = {key.rpartition(".")[2] for key in sys.modules if key.startswith(f"{name}.")}
        return name, self._named(
            (key, member) for key, member in vars(module).items() if key[:2] != "__" and key not in inner
        )

    def _function(self, function: FunctionType) -> Any:
        code, names = function.__code__, function.__globals__
        own = [("defaults", function.__defaults__), ("keywords", function.__kwdefaults__), *vars(function).items()]
        own += sorted(zip(code.co_freevars, map(_content, function.__closure__ or ()), strict=True), key=_first)
        module = names.get("__name__", "")
        if (version := _version(module)) is not None:
            return module, function.__qualname__, version, self._named(own)
        self._where = f"{function.__name__} ({place(code.co_filename, code.co_firstlineno)})"
        used = {name for part in _codes(code) for name in part.co_names}
        seen = [(name, names[name]) for name in sorted(used & names.keys())]
        hidden = used & (_READERS | _NUMPY if any(value is np for _, value in seen) else _READERS)
        if used & _BUILTINS - names.keys():  # or an attribute has that name
            hidden |= {
                i.argval for part in _codes(code) for i in dis.get_instructions(part) if i.opcode == _GLOBAL
            } & _BUILTINS
        if hidden:
            raise self._refusal(f"{min(hidden)} reads what no digest covers; read it once, at import, into a constant")
        inside = _inside([value for _, value in seen if isinstance(value, ModuleType)], used)
        imports = [value for part in _codes(code) for value in _imports(part, names)]
        return self._text(code), self._named([*own, *seen]), [self._plain(value) for value in (*inside, *imports)]

    def _text(self, code: CodeType) -> Any:
        """Return the lines of a function, or its code if there are none."""
        linecache.checkcache(code.co_filename)
        # From Python 3.13 on, "<string>" has the lines of `python -c`, not those of a function that exec made.
        lines = [] if code.co_filename == "<string>" else linecache.getlines(code.co_filename)
        ends = [end for part in _codes(code) for _, end, _, _ in part.co_positions() if end]
        if text := "".join(lines[code.co_firstlineno - 1 : max(ends, default=len(lines))]):
            return text
        constants = [[value for value in part.co_consts if not isinstance(value, CodeType)] for part in _codes(code)]
        return [part.co_code for part in _codes(code)], self._plain(constants)

    def _class(self, kind: type) -> Any:
        if (version := _version(kind.__module__)) is not None:
            return kind.__module__, kind.__qualname__, version
        # Of special names, only those that say what the class does.
        members = [
            (name, value)
            for name, value in vars(kind).items()
            if name != "_abc_impl" and (name[:2] != "__" or callable(value) or isinstance(value, classmethod))
        ]
        return kind.__qualname__, [self._plain(base) for base in (type(kind), *kind.__bases__)], self._named(members)

    def _instance(self, value: Any) -> Any:
        kind = type(value)
        if kind in (classmethod, staticmethod):
            return kind.__name__, self._plain(value.__func__)
        if kind is property:
            return kind.__name__, [self._plain(accessor) for accessor in (value.fget, value.fset, value.fdel)]
        if kind is cached_property:
            return kind.__name__, self._plain(value.func)
        inside = getattr(value, "__dict__", {}).get("__wrapped__")
        if inside is not None and _version(kind.__module__) is not None:  # a cache, for example
            return self._plain(kind), self._plain(inside)
        try:
            assert not isinstance(value, type(os.environ))
            reduce = copyreg.dispatch_table.get(kind)
            reduced: Any = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception:
            reason = (
                f"no digest covers a {kind.__name__}, so its changes would go unnoticed; create it inside the function"
            )
            raise self._refusal(reason) from None
        if isinstance(reduced, str):  # a global name
            return reduced, self._plain(sys.modules.get(getattr(value, "__module__", "")))
        parts = list(reduced)  # function, arguments, state, items and pairs of a copy
        if len(parts) > 2 and isinstance(parts[2], dict):
            hidden = _PROSE if kind.__module__.partition(".")[0] == _OURS else set()
            parts[2] = {
                name: part
                for name, part in parts[2].items()
                if name not in hidden and not isinstance(getattr(kind, name, None), cached_property)
            }
        return [self._plain(part if number < 3 or part is None else [*part]) for number, part in enumerate(parts[:5])]

    def _refusal(self, why: str) -> BadInput:
        return BadInput(f"app {self._app}: {self._where}: {why}")


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and that of the functions inside it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)


def _inside(packages: list[ModuleType], used: set[str]) -> list[ModuleType]:
    """Return the modules inside packages of the user or of Lockstep, if a function uses all parts of their names."""
    outer = [
        f"{package.__name__}."
        for package in packages
        if package.__name__ == _OURS or _version(package.__name__) is None
    ]
    return [
        sys.modules[name]
        for name in sorted(sys.modules if outer else ())
        for begin in outer
        if name.startswith(begin) and {*name.removeprefix(begin).split(".")} <= used
    ]


def _imports(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield the modules and values that a function imports when it is called."""
    if _IMPORT not in code.co_code[::2]:
        return
    instructions = list(dis.get_instructions(code))
    for level, members, instruction in zip(instructions, instructions[1:], instructions[2:], strict=False):
        if instruction.opcode == _IMPORT and (level.argval or _version(instruction.argval) is None):
            try:
                __import__(instruction.argval, names, None, members.argval, level.argval)
            except ImportError:
                continue
            whole = importlib.util.resolve_name("." * level.argval + instruction.argval, names.get("__package__"))
            yield from (sys.modules[name] for name in itertools.accumulate(whole.split("."), "{}.{}".format))
            yield from (getattr(sys.modules[whole], name, None) for name in members.argval or ())


def _version(module: str) -> str | None:
    """The version of the package of a module; empty for the standard library and Lockstep; None: follow the module."""
    return None if f"{module}.".startswith(_FOLLOWED) else _package_version(module.partition(".")[0])


@cache
def _package_version(package: str) -> str | None:
    if package == _OURS or package in sys.stdlib_module_names:
        return ""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec else []
    if not any({"site-packages", "dist-packages"} & {*Path(folder).parts} for folder in places):
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a package of another name has it, or none
        return next((metadata.version(name) for name in metadata.packages_distributions().get(package, ())), None)
