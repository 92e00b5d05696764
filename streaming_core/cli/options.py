"""Options that several commands share, and what they come to: parameters, and the specification of a run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from streaming_core.errors import BadInput
from streaming_core.run.way import EXECUTORS, RunSpec


def choices(axis: str) -> str:
    """The strategies of an axis, the default first."""
    return ", ".join(name for executor in EXECUTORS.values() for name in executor.axes.get(axis, ()))


AppName = Annotated[str, typer.Argument(metavar="APP", help="Application id; `streaming-core apps` lists them.")]
What = Annotated[str, typer.Argument(metavar="SPEC.json|APP", help="A run specification, or an application id.")]
Input = Annotated[Path, typer.Option("--input", help="Workload folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter that differs from its default.")
]
ProfileName = Annotated[str | None, typer.Option("--profile", help="A named set of parameters.")]
# Fields of a RunSpec that a command may be given; without a value, the specification decides.
RUN = {
    "executor": Annotated[str | None, typer.Option(help="Default: the first that runs the application.")],
    "threads": Annotated[int | None, typer.Option(help="OS threads that work, source and sink included.")],
    "scheme": Annotated[str | None, typer.Option(help=f"Transactional scheme: {choices('scheme')}.")],
    "pool": Annotated[str | None, typer.Option(help=f"Chain pool: {choices('pool')}.")],
    "stealing": Annotated[bool | None, typer.Option(help="Work stealing in a shared chain pool.")],
    "punctuation": Annotated[int | None, typer.Option(help="Events between punctuations.")],
    "checkpoint": Annotated[int | None, typer.Option(help="Punctuations between checkpoints; 0 = none.")],
    "batch": Annotated[int | None, typer.Option(help="Events in a batch.")],
    "heuristic": Annotated[str | None, typer.Option(help=f"How a pooled worker chooses: {choices('heuristic')}.")],
    "queue": Annotated[str | None, typer.Option(help=f"Worklist of partitioned operators: {choices('queue')}.")],
    "reorder": Annotated[str | None, typer.Option(help=f"Reorder buffer: {choices('reorder')}.")],
    "channel": Annotated[str | None, typer.Option(help=f"What orders several replicas: {choices('channel')}.")],
    "plan": Annotated[Path | None, typer.Option(help='Plan file, JSON: {"operator": [thread of each replica], ...}.')],
    "order": Annotated[str | None, typer.Option(help="Order of delivery.")],
    "rate": Annotated[float | None, typer.Option(help="Open-loop events per second; 0 = peak.")],
    "pin": Annotated[bool | None, typer.Option(help="Bind thread i to core i.")],
    "idle": Annotated[str | None, typer.Option(help="What a waiting thread does: spin, yield, park.")],
    "sink": Annotated[str | None, typer.Option(help="parquet, digest or count. Default: parquet.")],
    "repetitions": Annotated[int | None, typer.Option(help="Measured passes after the first.")],
}
# A recording is one pass in total order over stages without transactions.
RECORD = {
    name: RUN[name]
    for name in ("executor", "threads", "batch", "heuristic", "queue", "reorder", "channel", "plan", "pin", "idle")
}


def takes(options: dict[str, Any]) -> Callable[[Callable], Callable]:
    """Gives a command these options where its parameter `given` stands; it gets those that are given, by name."""

    def decorate(command: Callable) -> Callable:
        @wraps(command)
        def with_options(**arguments: Any) -> None:
            given = {name: value for name in options if (value := arguments.pop(name)) is not None}
            command(**arguments, given=given)

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == "given":
                kind = inspect.Parameter.KEYWORD_ONLY
                parameters += [inspect.Parameter(n, kind, default=None, annotation=a) for n, a in options.items()]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        with_options.__signature__ = signature.replace(parameters=parameters)
        return with_options

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
    what: str, given: dict[str, Any], profile: str | None, settings: list[str] | None, source: Path
) -> RunSpec:
    """The run that is asked for: that of a file, or of an application with the options that are given."""
    if what.endswith(".json"):
        if given or settings or profile:
            raise BadInput("a run specification is complete: give options in the file, not beside it")
        return RunSpec.parse(_read(Path(what)))
    if "plan" in given:
        given = given | {"plan": _plan(given["plan"])}
    return _spec(what, given, parameters(what, profile, settings), source)


def _plan(path: Path) -> dict:
    """The plan in a file, which RunSpec checks."""
    try:
        plan = json.loads(_read(path))
    except ValueError as error:
        raise BadInput(f"{path} is no JSON: {error}") from None
    if not isinstance(plan, dict):
        raise BadInput(f'{path} holds no plan: {{"operator": [thread of each replica], ...}}')
    return plan


def _spec(name: str, given: dict, params: dict, source: Path) -> RunSpec:
    from streaming_core.apps import registry
    from streaming_core.data import workload

    loaded = registry.load(name)
    able = [e.name for e in EXECUTORS.values() if loaded.kind in e.runs]
    if "executor" not in given:
        if not able:
            raise BadInput(f"application {name} is {loaded.kind}: no executor runs it yet")
        given = given | {"executor": able[0]}
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
