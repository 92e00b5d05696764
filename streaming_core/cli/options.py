"""Options that several commands share, and how they become parameters and a run specification."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from streaming_core.errors import BadInput, bounds_of, one_line, range_text, unknown
from streaming_core.language.parameters import integer
from streaming_core.run.report import RunReport
from streaming_core.run.way import (
    AUTO_PLAN,
    EXECUTORS,
    NAMED_PLANS,
    SPEC_FIELDS,
    Pinned,
    RunSpec,
    Spark,
    executors_of,
    values_of,
)

AppName = Annotated[str, typer.Argument(metavar="APP", help="Application; `streaming-core apps` lists them.")]
What = Annotated[
    str,
    typer.Argument(
        metavar="SPEC.json|APP", help="Application, or a JSON file that holds a complete run specification."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        help="Read a field from a column with another name. Repeat for more. Write STREAM.FIELD for one stream.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter of the application; repeat it for several."),
]
ProfileName = Annotated[
    str | None,
    typer.Option("--profile", help="Named set of parameters; `streaming-core describe APP` lists them."),
]


@dataclass(frozen=True)
class Events:
    """The options that say where the events of a command come from. A user gives one of them."""

    input: Annotated[
        Path | None, typer.Option(help="Workload folder, as `streaming-core generate` or `lockstep import` writes it.")
    ] = None
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[STREAM=]FILE",
            help="File with events of your own, instead of --input: CSV, Parquet or JSON lines. Repeat it for more "
            "files, or write STREAM=FILE for each stream of the application.",
        ),
    ] = None
    mapping: Columns = None

    def workload(self, app: str, params: dict[str, Any]) -> AbstractContextManager[Path]:
        """The folder of the workload (importing/form.py)."""
        from streaming_core.cli.output import NAME
        from streaming_core.importing import form
        from streaming_core.process.ending import say

        return form.workload_of(app, params, self.input, self.data or (), self.mapping or (), partial(say, NAME))


# Fields that a command reads from a JSON file -> the type and the form of its content.
FILES: dict[str, tuple[type, str]] = {
    "plan": (dict, '{"operator": [thread of each replica], ...}'),
    "schedule": (list, '[{"event": 1000, "owners": {"operator": 2}}, ...], with a number or a list of replicas'),
}
# Fields that a command takes as numbers with commas between them.
NUMBERS = ("thresholds",)
# What the help of a command adds to the description of a field.
NOTES = {
    "executor": "Default: the first executor that runs the application. Only `lockstep run` has executor spark. Or "
    "the name of another engine, as `lockstep engines list` shows it.",
    "plan": f"Takes replicated, auto, or a JSON file: {FILES['plan'][1]}. Default of `run` on several threads: auto. "
    "Default of a run with a schedule, a controller or parallelism sn: replicated.",
    "schedule": f"Takes a JSON file: {FILES['schedule'][1]}. Also takes the report.json of a run, to repeat the "
    "reconfigurations of its first pass.",
    "thresholds": "Example: 90,70,45.",
    "sink": "Default: parquet.",
}


def examples(*lines: str) -> str:
    """The epilog of a command: an example on each line."""
    return "\n\n".join(["Examples:", *lines])


def option_name(field: str) -> str:
    """The option of a field, as users type it: `--throughput-window`."""
    return f"--{field.replace('_', '-')}"


def _option(name: str) -> Any:
    """Make an option of a field of a spec. If the user omits it, the default of the spec counts."""
    field = SPEC_FIELDS[name]
    values = values_of(name)
    kind: Any = str if values or name in NUMBERS else Path if name in FILES else field.annotation
    return Annotated[kind | None, typer.Option(help=" ".join(filter(None, _help(name, field, values))))]


def _help(name: str, field: FieldInfo, values: tuple[str, ...]) -> Iterator[str | None]:
    """The sentences of an option's help: its description, its values or bounds, and its default."""
    yield field.description
    if values:
        yield f"One of {', '.join(values)}."
    if bounds_of(field) != (None, None):
        limits = range_text(*bounds_of(field))
        yield f"{limits[0].upper()}{limits[1:]}."
    if note := NOTES.get(name):
        yield note
    elif isinstance(field.default, str | int | float) and not isinstance(field.default, bool) and field.default != "":
        yield f"Default: {field.default}."


RUN = {name: _option(name) for name in SPEC_FIELDS if name not in ("app", "params")}
# A live run takes its other options from a file.
FOLLOW = {name: RUN[name] for name in ("executor", "threads", "punctuation", "checkpoint")}
# A recording is one pass, in total order, over stages without transactions.
_RECORDED = {"executor", "threads", "batch", "pin", "idle"}
_RECORDED |= {option for name in executors_of("dataflow") for option in EXECUTORS[name].options()} - {"order"}
RECORD = {name: RUN[name] for name in RUN if name in _RECORDED}


def takes(options: dict[str, Any]) -> Callable[[Callable], Callable]:
    """Give a command these options in place of its parameter `options`, which receives those with a value, by name."""

    def decorate(command: Callable) -> Callable:
        @wraps(command)
        def with_options(**arguments: Any) -> Any:
            values = {name: value for name in options if (value := arguments.pop(name)) is not None}
            return command(**arguments, options=values)

        return _with_parameters(
            with_options, {"options": [_parameter(name, annotation, None) for name, annotation in options.items()]}
        )

    return decorate


def grouped(command: Callable) -> Callable:
    """Give a command the fields of a dataclass as options, in place of a parameter of that dataclass's type.

    A field declares its option as a parameter would: `Annotated[int, typer.Option(...)] = 1`. The command receives an
    instance of the dataclass.
    """
    annotations = {
        name: parameter.annotation for name, parameter in inspect.signature(command, eval_str=True).parameters.items()
    }
    groups: dict[str, Any] = {
        name: reconfiguration for name, reconfiguration in annotations.items() if is_dataclass(reconfiguration)
    }

    @wraps(command)
    def with_groups(**arguments: Any) -> Any:
        instances = {
            name: group(**{field.name: arguments.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**arguments, **instances)

    return _with_parameters(with_groups, {name: _parameters_of(group) for name, group in groups.items()})


def _parameters_of(group: Any) -> list[inspect.Parameter]:
    """A parameter for each field of a dataclass."""
    annotations = get_type_hints(group, include_extras=True)
    defaults = {field.name: field.default for field in fields(group)}
    return [
        _parameter(name, annotations[name], inspect.Parameter.empty if default is MISSING else default)
        for name, default in defaults.items()
    ]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _with_parameters(command: Callable, replacements: dict[str, list[inspect.Parameter]]) -> Callable:
    """The command with a signature in which other parameters replace some of its own."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        own = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += replacements.get(parameter.name, [own])
    decorated: Any = command
    decorated.__signature__ = signature.replace(parameters=parameters)
    return decorated


def parameters(name: str, profile: str | None, settings: list[str] | None) -> dict[str, Any]:
    """The checked parameters of a profile and of `--set`."""
    from streaming_core.apps import registry

    loaded = registry.load(name)
    values: dict[str, Any] = {}
    if profile is not None:
        if profile not in loaded.profiles:
            raise BadInput(f"app {name}: {unknown('profile', profile, loaded.profiles)}")
        values |= loaded.profiles[profile].params
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"--set must have the form NAME=VALUE, got {setting!r}")
        values[key] = value
    bound = loaded.bind(values)
    return {key: bound[key] for key in values}


def specification(
    what: str,
    options: dict[str, Any],
    profile: str | None,
    settings: list[str] | None,
    source: Path | None,
    find_plan: bool = False,
) -> RunSpec:
    """The spec of a run, from a file, or from an application and options.

    Args:
        what: A file (`*.json`), or an application id.
        options: The options with a value, by name.
        profile: A profile of the application, or None.
        settings: Parameters as NAME=VALUE.
        source: The workload, whose parameters count if no others are given. A live run has none.
        find_plan: Whether to choose plan auto where the options leave the plan open.

    Raises:
        BadInput: One line that says which option is wrong.
    """
    if what.endswith(".json"):
        extra = [option_name(name) for name in options] + ["--set"] * bool(settings) + ["--profile"] * bool(profile)
        if extra:
            raise BadInput(f"{what} is a complete run specification; move {', '.join(extra)} into the file")
        content = _read(Path(what))
        try:
            return _of_process(RunSpec.parse(content))
        except BadInput as error:
            raise BadInput(f"{what}: {error}") from None
    values = options | {name: _read_field(name, options[name]) for name in FILES if name in options}
    values |= {name: numbers(option_name(name), options[name]) for name in NUMBERS if name in options}
    spec = _of_process(_spec(what, values, parameters(what, profile, settings), source))
    uses_auto_plan = find_plan and "plan" not in options and isinstance(spec, Pinned) and spec.leaves_plan_open
    return spec.model_copy(update={"plan": AUTO_PLAN}) if uses_auto_plan else spec


def _of_process(spec: RunSpec) -> RunSpec:
    """The spec; raises BadInput if a process on this machine cannot run it."""
    if isinstance(spec, Spark):
        raise BadInput(
            f"executor {spec.executor} runs only in a regression: type "
            f"`lockstep run --executors {spec.executor} --applications {spec.app} --threads {spec.threads}`"
        )
    return spec


def _read_field(name: str, path: Path) -> Any:
    """The content of a plan file or schedule file, or a named plan. RunSpec checks it."""
    if name == "plan" and str(path) in NAMED_PLANS:
        return NAMED_PLANS[str(path)]
    if name == "plan" and not path.suffix and not path.exists():
        raise BadInput(f"--plan: {unknown('plan', str(path), NAMED_PLANS)}, or a JSON file")
    try:
        content = from_json(_read(path))
    except BadInput as error:
        raise BadInput(f"{option_name(name)}: {error}") from None
    except ValueError as error:
        raise BadInput(f"{option_name(name)}: {path} is not valid JSON: {error}") from None
    if name == "schedule" and isinstance(content, dict) and "samples" in content:
        try:
            report = RunReport.model_validate_json(_read(path))
        except ValidationError as error:
            raise BadInput(f"--schedule: {path} is not the report.json of a run: {one_line(error)}") from None
        if omitted := report.verified.omitted_reconfigurations:
            raise BadInput(f"--schedule: cannot repeat the run, because {path} omits {omitted} reconfigurations")
        content = _schedule_of(report)
    kind, form = FILES[name]
    if not isinstance(content, kind):
        raise BadInput(f"{option_name(name)}: {path} must hold {form}")
    return content


def _schedule_of(report: RunReport) -> list[dict[str, Any]]:
    """The reconfigurations of a run's first pass, as a schedule."""
    reconfigurations = sorted(report.verified.reconfigurations, key=lambda reconfiguration: reconfiguration.event)
    return [
        {"event": reconfiguration.event, "owners": {reconfiguration.operator: reconfiguration.owners}}
        for reconfiguration in reconfigurations
    ]


def numbers(option: str, text: str, bounds: tuple[int, int] | None = None) -> list[int]:
    """The numbers in the value of an option, which has commas between them.

    Args:
        option: The option, for the message.
        text: Its value.
        bounds: The smallest and the largest number that the option takes, or None.

    Raises:
        BadInput: The text is no list of numbers, or a number is out of bounds.
    """
    try:
        values = [integer(number) for number in text.split(",")]
    except ValueError:
        values = None
    if values is None or (bounds and not all(bounds[0] <= value <= bounds[1] for value in values)):
        allowed = (
            f"numbers from {bounds[0]} to {bounds[1]}, separated by commas"
            if bounds
            else ("numbers separated by commas")
        )
        raise BadInput(f"{option} must be {allowed}, got {text!r}")
    return values


def _spec(name: str, values: dict[str, Any], params: dict[str, Any], source: Path | None) -> RunSpec:
    """The spec of a run of an application.

    Args:
        name: The application.
        values: The fields that the options set.
        params: The parameters that the options set.
        source: The workload, whose parameters count if `params` is empty; None for a live run.
    """
    from streaming_core.apps import registry
    from streaming_core.data import workload

    loaded = registry.load(name)
    if "executor" not in values:
        values = values | {"executor": executors_of(loaded.kind)[0]}
    if not params and source is not None:
        # The parameters of the operators are part of the workload.
        manifest = workload.read_manifest(source)
        if manifest["app"] == name:
            defaults = loaded.bind()
            params = {k: v for k, v in loaded.bind(manifest["params"]).items() if v != defaults[k]}
    return RunSpec.parse({"sink": "parquet"} | values | {"app": name, "params": params}, name=option_name)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
