"""The check of what a declaration is given: `@declares` compares the arguments of a call with their annotations."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable
from functools import cache, wraps
from reprlib import repr as short
from types import FrameType, FunctionType, NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from streaming_core.errors import BadInput

Declaration = TypeVar("Declaration", bound=Callable)
# A name that can be a variable, a column, a file or a view of SQL.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
NAME_RULE = "use letters, digits and _, with a letter or _ first, and no word of Python"
_WORDS = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "a text",
    dict: "a dict",
    tuple: "a tuple",
    Callable: "a plain def",
    NoneType: "None",
}


def is_name(name: object) -> bool:
    """Whether this can be the name of a part of an application."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and not keyword.iskeyword(name)


def check_field(what: str, name: str) -> None:
    """Raise BadInput unless the field of a result can have this name."""
    if not is_name(name):
        raise BadInput(f"{what}: invalid name {name!r} of a field; {NAME_RULE}")
    if name in ("seq", "sub") or name.startswith("_"):
        raise BadInput(f"{what}: the field name {name!r} is reserved; rename the field")


def caller() -> FrameType:
    """The frame of the application's file: that which calls the language."""
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").startswith(__package__):
        frame = frame.f_back
    assert frame is not None
    return frame


def declares(declaration: Declaration) -> Declaration:
    """Let a function, or a class, refuse arguments whose types are not those of its annotations."""
    if inspect.isclass(declaration):
        declaration.__init__ = declares(declaration.__init__)
        return declaration
    signature, name = inspect.signature(declaration), declaration.__qualname__.removesuffix(".__init__").split(".")[-1]
    hints = cache(lambda: get_type_hints(declaration))  # at the first call, because annotations name later classes

    @wraps(declaration)
    def check(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named).arguments
        except TypeError as error:
            raise BadInput(f"{name}: {error}") from None
        for parameter, value in bound.items():
            hint = hints().get(parameter, Any)
            several = signature.parameters[parameter].kind
            values = [(parameter, item) for item in value] if several is inspect.Parameter.VAR_POSITIONAL else None
            values = [*value.items()] if several is inspect.Parameter.VAR_KEYWORD else values
            for what, item in [(parameter, value)] if values is None else values:
                if not _fits(item, hint):
                    what, hint, item = _wrong(what, hint, item)
                    raise BadInput(f"{name}: {what} must be {_text(hint)}, got {shown(item)}")
        return declaration(*arguments, **named)

    return cast(Declaration, check)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has the type of an annotation. A boolean is no number, and an integer can be a float."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is dict and parts:
        is_dict = isinstance(value, dict)
        return is_dict and all(_fits(key, parts[0]) and _fits(item, parts[1]) for key, item in value.items())
    if kind is tuple and parts:
        kinds = parts[:1] * len(value) if parts[1:] == (...,) and isinstance(value, tuple) else parts
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if kind in (int, float):
        return type(value) in (int, kind)
    return kind is Any or isinstance(value, FunctionType if kind is Callable else kind)


def _wrong(what: str, hint: Any, value: Any) -> tuple[str, Any, Any]:
    """The part of a value that has not the type of an annotation, with the part's name and type."""
    for arg in get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]:
        kind, parts = get_origin(arg), get_args(arg)
        if kind is dict and isinstance(value, dict):
            for key, item in value.items():
                if not _fits(key, parts[0]):
                    return _wrong(f"a key of {what}", parts[0], key)
                if not _fits(item, parts[1]):
                    return _wrong(f"{what}[{shown(key)}]", parts[1], item)
        if kind is tuple and isinstance(value, tuple) and parts[1:] == (...,):
            n, item = next((n, item) for n, item in enumerate(value) if not _fits(item, parts[0]))
            return _wrong(f"{what}[{n}]", parts[0], item)
    return what, hint, value


def _text(hint: Any) -> str:
    """An annotation, as a message names it."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        *others, last = map(_text, get_args(hint))
        return f"{', '.join(others)} or {last}"
    return _WORDS.get(kind) or str(getattr(kind, "WORDS", f"a {getattr(kind, '__name__', kind)}"))


def shown(value: Any) -> str:
    """A value, as a message shows it: without addresses."""
    if isinstance(value, bool | int | float | str | bytes | None):
        return short(value)
    if isinstance(name := getattr(value, "__name__", None), str):
        return name
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"
