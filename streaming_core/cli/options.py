"""Options that several commands share, and what they come to: parameters, and the specification of a run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from streaming_core.errors import BadInput
from streaming_core.run.report import RunReport
from streaming_core.run.way import (
    AUTO_PLAN,
    AXES,
    EXECUTORS,
    NAMED_PLANS,
    SPEC_FIELDS,
    Pinned,
    RunSpec,
    executors_of,
    literal_values,
)

AppName = Annotated[str, typer.Argument(metavar="APP", help="Application id; `streaming-core apps` lists them.")]
What = Annotated[str, typer.Argument(metavar="SPEC.json|APP", help="A run specification, or an application id.")]
Input = Annotated[Path, typer.Option("--input", help="Workload folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter that differs from its default.")
]
ProfileName = Annotated[str | None, typer.Option("--profile", help="A named set of parameters.")]
# What a command says of a field beside its description.
NOTES = {
    "executor": "Default: the first that runs the application.",
    "plan": 'A file, JSON: {"operator": [thread of each replica], ...}. Or replicated, each operator on each thread. '
    "Default of `run` on several threads: auto, unless a schedule, a controller or sn is to have its replicas.",
    "schedule": 'A file, JSON: [{"event": 1000, "replicas": {"operator": 2}}, ...]: how many, or a list of which. '
    "Or a run's report.json: what its first pass went through, again.",
    "thresholds": "Three numbers: 90,70,45.",
    "sink": "Default: parquet.",
}
# Fields that are given as a file of JSON, and what is in it.
FILES = {"plan": dict, "schedule": list}
# Fields that are given as numbers with commas between them.
NUMBERS = ("thresholds",)


def _option(name: str) -> Any:
    """A field of a RunSpec as an option; without a value, the specification decides."""
    field = SPEC_FIELDS[name]
    words = tuple(EXECUTORS) if name == "executor" else AXES.get(name) or literal_values(field)
    kind: Any = str if words or name in NUMBERS else Path if name in FILES else field.annotation
    assert field.description is not None
    text = f"{field.description.removesuffix('.')}: {', '.join(words)}." if words else field.description
    return Annotated[kind | None, typer.Option(help=" ".join([text, *filter(None, [NOTES.get(name)])]))]


RUN = {name: _option(name) for name in SPEC_FIELDS if name not in ("app", "params")}
# A recording is one pass in total order over stages without transactions.
_OF_DATAFLOWS = {name for executor in executors_of("dataflow") for name in EXECUTORS[executor].options} - {"order"}
RECORD = {name: RUN[name] for name in RUN if name in {"executor", "threads", "batch", "pin", "idle"} | _OF_DATAFLOWS}


def takes(options: dict[str, Any]) -> Callable[[Callable], Callable]:
    """Gives a command these options where its parameter `given` stands; it gets those that are given, by name."""

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
    """Parameters given by profile and `--set`, checked; only those that were given."""
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
    """The run that is asked for: that of a file, or of an application with the options that are given. Of these a plan
    is to be found where none is given, if `find_plan`."""
    if what.endswith(".json"):
        if given or settings or profile:
            raise BadInput("a run specification is complete: give options in the file, not beside it")
        return RunSpec.parse(_read(Path(what)))
    given = given | {name: _in_file(name, given[name]) for name in FILES if name in given}
    given |= {name: _numbers(name, given[name]) for name in NUMBERS if name in given}
    spec = _spec(what, given, parameters(what, profile, settings), source)
    found = find_plan and "plan" not in given and isinstance(spec, Pinned) and spec.lacks_plan
    return spec.model_copy(update={"plan": AUTO_PLAN}) if found else spec


def _in_file(name: str, path: Path) -> Any:
    """The plan, which may be a word, or the schedule, in a file, which RunSpec checks."""
    if name == "plan" and str(path) in NAMED_PLANS:
        return NAMED_PLANS[str(path)]
    try:
        found = json.loads(_read(path))
    except ValueError as error:
        raise BadInput(f"{path} is no JSON: {error}") from None
    if name == "schedule" and isinstance(found, dict) and "samples" in found:
        try:
            found = _gone_through(RunReport.model_validate(found))
        except ValidationError:
            raise BadInput(f"{path} is no report of a run") from None
    if not isinstance(found, FILES[name]):
        raise BadInput(
            f"{path} holds no {name}: {NOTES[name].removeprefix('A file, JSON: ').partition('. ')[0].removesuffix('.')}"
        )
    return found


def _gone_through(report: RunReport) -> list[dict[str, Any]]:
    """The reconfigurations of a run's first pass, as a schedule."""
    found = sorted(report.verified.reconfigurations, key=lambda one: one.event)
    return [{"event": one.event, "replicas": {one.operator: one.replicas}} for one in found]


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
        # What the workload was made with is what runs: the operators' parameters are part of it.
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
