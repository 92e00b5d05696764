"""Options that several commands share, and the parameters and the run specification that they stand for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_core import from_json

from streaming_core.errors import BadInput
from streaming_core.run.report import RunReport
from streaming_core.run.way import (
    AUTO_PLAN,
    EXECUTORS,
    NAMED_PLANS,
    SPEC_FIELDS,
    Pinned,
    RunSpec,
    executors_of,
    values_of,
)

AppName = Annotated[str, typer.Argument(metavar="APP", help="Application id; `streaming-core apps` lists them.")]
What = Annotated[str, typer.Argument(metavar="SPEC.json|APP", help="A run specification, or an application id.")]
Input = Annotated[Path, typer.Option("--input", help="Workload folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter that differs from its default.")
]
ProfileName = Annotated[str | None, typer.Option("--profile", help="A named set of parameters.")]
# Fields that a command reads from a JSON file -> the type and the form of its content.
FILES: dict[str, tuple[type, str]] = {
    "plan": (dict, '{"operator": [thread of each replica], ...}'),
    "schedule": (list, '[{"event": 1000, "replicas": {"operator": 2}}, ...]: a number of replicas, or a list of them'),
}
# Fields that a command takes as numbers with commas between them.
NUMBERS = ("thresholds",)
# What the help of a command adds to the description of a field.
NOTES = {
    "executor": "Default: the first that runs the application.",
    "plan": f"A name, or a JSON file: {FILES['plan'][1]}. Default of `run` on several threads: auto, unless the run "
    "has a schedule, a controller or parallelism sn.",
    "schedule": f"A JSON file: {FILES['schedule'][1]}. Or the report.json of a run, to repeat the reconfigurations of "
    "its first pass.",
    "thresholds": "Three numbers: 90,70,45.",
    "sink": "Default: parquet.",
}


def _option(name: str) -> Any:
    """A field of a spec as an option. Without a value, the spec's default counts."""
    field = SPEC_FIELDS[name]
    values = values_of(name)
    kind: Any = str if values or name in NUMBERS else Path if name in FILES else field.annotation
    assert field.description is not None
    text = f"{field.description.removesuffix('.')}: {', '.join(values)}." if values else field.description
    return Annotated[kind | None, typer.Option(help=" ".join([text, *filter(None, [NOTES.get(name)])]))]


RUN = {name: _option(name) for name in SPEC_FIELDS if name not in ("app", "params")}
# A recording is one pass, in total order, over stages without transactions.
_RECORDED = {"executor", "threads", "batch", "pin", "idle"}
_RECORDED |= {option for name in executors_of("dataflow") for option in EXECUTORS[name].options()} - {"order"}
RECORD = {name: RUN[name] for name in RUN if name in _RECORDED}


def takes(options: dict[str, Any]) -> Callable[[Callable], Callable]:
    """Give a command these options in place of its parameter `given`, which receives those with a value, by name."""

    def decorate(command: Callable) -> Callable:
        @wraps(command)
        def with_options(**arguments: Any) -> Any:
            given = {name: value for name in options if (value := arguments.pop(name)) is not None}
            return command(**arguments, given=given)

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == "given":
                kind = inspect.Parameter.KEYWORD_ONLY
                parameters += [inspect.Parameter(n, kind, default=None, annotation=a) for n, a in options.items()]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        decorated: Any = with_options
        decorated.__signature__ = signature.replace(parameters=parameters)
        return decorated

    return decorate


def parameters(name: str, profile: str | None, settings: list[str] | None) -> dict[str, Any]:
    """The parameters that a profile and `--set` give, checked."""
    from streaming_core.apps import registry

    loaded = registry.load(name)
    given: dict[str, Any] = {}
    if profile is not None:
        if profile not in loaded.profiles:
            known = ", ".join(loaded.profiles) or "none"
            raise BadInput(f"app {name}: unknown profile {profile!r}; known: {known}")
        given |= loaded.profiles[profile].params
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"--set {setting!r}: write NAME=VALUE")
        given[key] = value
    bound = loaded.bind(given)
    return {key: bound[key] for key in given}


def specification(
    what: str,
    given: dict[str, Any],
    profile: str | None,
    settings: list[str] | None,
    source: Path,
    find_plan: bool = False,
) -> RunSpec:
    """The spec of a run, from a file, or from an application and options.

    Args:
        what: A file (`*.json`), or an application id.
        given: The options with a value, by name.
        profile: A profile of the application, or None.
        settings: Parameters as NAME=VALUE.
        source: The workload, whose parameters count if no others are given.
        find_plan: Whether to choose plan auto where the options leave the plan open.

    Raises:
        BadInput: One line that says which option is wrong.
    """
    if what.endswith(".json"):
        if given or settings or profile:
            raise BadInput(f"{what} is a complete run specification: set options in the file, not on the command line")
        return RunSpec.parse(_read(Path(what)))
    given = given | {name: _read_field(name, given[name]) for name in FILES if name in given}
    given |= {name: _numbers(name, given[name]) for name in NUMBERS if name in given}
    spec = _spec(what, given, parameters(what, profile, settings), source)
    uses_auto_plan = find_plan and "plan" not in given and isinstance(spec, Pinned) and spec.leaves_plan_open
    return spec.model_copy(update={"plan": AUTO_PLAN}) if uses_auto_plan else spec


def _read_field(name: str, path: Path) -> Any:
    """The content of a plan's or a schedule's file, or the plan of that name. RunSpec checks it."""
    if name == "plan" and str(path) in NAMED_PLANS:
        return NAMED_PLANS[str(path)]
    try:
        content = from_json(_read(path))
    except ValueError as error:
        raise BadInput(f"{path} is no JSON: {error}") from None
    if name == "schedule" and isinstance(content, dict) and "samples" in content:
        try:
            report = RunReport.model_validate(content)
        except ValidationError:
            raise BadInput(f"{path} is no report of a run") from None
        if omitted := report.verified.omitted_reconfigurations:
            raise BadInput(f"{path} omits {omitted} reconfigurations of its run, which cannot be repeated")
        content = _schedule_of(report)
    kind, form = FILES[name]
    if not isinstance(content, kind):
        raise BadInput(f"{path} holds no {name}: {form}")
    return content


def _schedule_of(report: RunReport) -> list[dict[str, Any]]:
    """The reconfigurations of a run's first pass, as a schedule."""
    reconfigurations = sorted(report.verified.reconfigurations, key=lambda one: one.event)
    return [{"event": one.event, "replicas": {one.operator: one.replicas}} for one in reconfigurations]


def _numbers(name: str, text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise BadInput(f"{name} {text!r} are no numbers with commas between them") from None


def _spec(name: str, given: dict, params: dict, source: Path) -> RunSpec:
    from streaming_core.apps import registry
    from streaming_core.data import workload

    loaded = registry.load(name)
    if "executor" not in given:
        given = given | {"executor": executors_of(loaded.kind)[0]}
    if not params:
        # The parameters of the operators are part of the workload.
        made = workload.read_manifest(source)
        if made["app"] == name:
            defaults = loaded.bind()
            params = {k: v for k, v in loaded.bind(made["params"]).items() if v != defaults[k]}
    return RunSpec.parse({"sink": "parquet"} | given | {"app": name, "params": params})


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
