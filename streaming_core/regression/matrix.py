"""The plan of a regression run: its cells and their workloads. It is written once, before anything runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput, unknown
from streaming_core.language.application import App
from streaming_core.regression.fleet import LOCAL, SPARK
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.plan import Omission, Plan, PlannedCell, PlannedWorkload
from streaming_core.regression.preflight import Preflight
from streaming_core.regression.request import HOST_NAME, RegressionSpec
from streaming_core.run.way import External, RunSpec, Spark
from streaming_core.storage import write_json

MAX_CELLS = 1024


Imported = dict[str, workload.Manifest]  # application -> the manifest of the imported events that it runs on


def imported(regression: RegressionSpec, home: Home) -> Imported:
    """The imported events that the request names, as workloads of their applications.

    Raises:
        BadInput: There is no import of that name, or it has other records than the application. Or the request does
            not run the application.
    """
    manifests: Imported = {}
    for name, called in regression.data.items():
        if name not in regression.applications:
            raise BadInput(f"data: the request imports events for {name!r} but does not run it; add it to applications")
        folder = home.imported(called)
        if not folder.is_dir():
            known = sorted(path.name for path in folder.parent.glob("[!.]*"))
            raise BadInput(
                f"data: {unknown('import', called, known)}; create it with "
                f"`lockstep import {name} FILES --name {called}`"
            )
        manifests[name] = workload.bound(
            folder, workload.read_manifest(folder), registry.load(name), regression.params.get(name)
        )
    return manifests


Hosts = Mapping[str, Preflight]  # connection -> its preflight; a host without one has cores for any number of threads


def lanes(regression: RegressionSpec, hosts: Hosts) -> list[str]:
    """The hosts of a request that get cells. An unfit host gets none, but with `every` the plan shows what it lacks."""
    return [name for name in regression.hosts if regression.placement == "every" or not _of(hosts, name).reason]


def places(regression: RegressionSpec, hosts: Hosts) -> dict[int, list[str]]:
    """The numbers of threads of a request, in order, and the hosts that run cells with so many.

    Without `oversubscribe`, each thread has a core of its own, so there may be no host.
    """
    able: dict[int, list[str]] = {count: [] for count in regression.thread_counts(())}
    for name in lanes(regression, hosts):
        host = _of(hosts, name)
        for count in regression.thread_counts(host.points):
            names = able.setdefault(count, [])
            if regression.oversubscribe or host.threads is None or count <= host.threads:
                names.append(name)
    return dict(sorted(able.items()))


def _of(hosts: Hosts, name: str) -> Preflight:
    return hosts.get(name, Preflight(name))


def _lack(regression: RegressionSpec, spec: RunSpec, able: Sequence[str], hosts: Hosts) -> str | None:
    """The reason why some hosts, or all of them, do not run a cell for want of cores; None if it lacks nothing."""
    # What `auto` stands for fits its own host.
    if isinstance(spec, Spark) or (spec.is_engine and spec.threads not in regression.threads):
        return None
    needed = [LOCAL] if isinstance(spec, External) else lanes(regression, hosts)
    lacking = [name for name in needed if name in hosts and name not in able]
    if not lacking or (spec.is_engine and regression.placement == "any" and able):
        return None
    cores = ", ".join(f"host {name} grants {hosts[name].threads}" for name in lacking)
    return f"{spec.threads} threads need as many cores ({cores}): set oversubscribe to run them nevertheless"


def cells(
    regression: RegressionSpec, data: Imported | None = None, hosts: Hosts | None = None
) -> tuple[list[RunSpec], list[Omission]]:
    """The matrix: the cells to run, and the cells left out because their applications do not run that way.

    A request is valid even if an application does not support a strategy that others do, or has no events.

    Args:
        regression: The request.
        data: The manifests that `imported` returns.
        hosts: The preflights of the hosts.

    Returns:
        The cells, and for each reason {reason, cells: the names of the cells left out}.

    Raises:
        BadInput: An application or a parameter is unknown, or the request has no cell or too many.
    """
    applications = registry.names()
    apps = {name: registry.load(name) for name in regression.applications if name in applications}
    events = dict.fromkeys(apps, regression.events)
    events |= {name: manifest["events"] for name, manifest in (data or {}).items()}
    kept: list[RunSpec] = []
    left_out: dict[str, list[str]] = {}
    able = places(regression, hosts or {})
    kinds = registry.kinds() | {name: app.kind for name, app in apps.items()}
    for spec in regression.cells(kinds, list(able)):
        apps[spec.app].bind(spec.params)
        try:
            spec.check(apps[spec.app])
            if spec.app not in (data or {}):
                apps[spec.app].check_generator()
        except BadInput as error:
            left_out.setdefault(str(error), []).append(spec.cell)
            continue
        lack = _lack(regression, spec, able[spec.threads], hosts or {})
        if lack:
            left_out.setdefault(lack, []).append(spec.cell)
        if able[spec.threads] if spec.is_engine else not lack:
            kept.append(spec)
            # The replicas of a plan that still has to be found are unknown.
            known = spec.threads > 1 and not spec.needs_plan and "schedule" in spec.options()
            if regression.reconfigurations and known and apps[spec.app].kind == "windowed":
                kept.append(reconfigured(spec, apps[spec.app], regression.reconfigurations, events[spec.app]))
    if not kept:
        raise BadInput(f"the request has no cell that can run: {'; '.join(left_out)}")
    is_every = regression.placement == "every"
    _check_count(sum(len(able[spec.threads]) if is_every and spec.is_engine else 1 for spec in kept))
    return kept, [{"reason": reason, "cells": names} for reason, names in left_out.items()]


def _check_count(count: int) -> None:
    if count > MAX_CELLS:
        remedy = "remove applications, strategies, threads or batches"
        raise BadInput(f"a run can have at most {MAX_CELLS} cells, got {count}; {remedy}")


def reconfigured(spec: RunSpec, app: App, times: int, events: int) -> RunSpec:
    """The cell, with evenly spaced reconfigurations: to half of the replicas, to the other half, to all again."""
    all_of_them = list(range(spec.threads))
    half = -(-spec.threads // 2)
    shares = itertools.cycle([all_of_them[:half], all_of_them[half:], all_of_them])
    names = [operator.name for operator in app.operators if operator.kind == "windowed"]
    places = [(place + 1) * events // (times + 1) for place in range(times)]
    schedule = [
        {"event": event, "owners": dict.fromkeys(names, share)} for event, share in zip(places, shares, strict=False)
    ]
    return RunSpec.parse(spec.model_dump(mode="json") | {"schedule": schedule})


def omissions(planned: Plan) -> list[str]:
    """A line for each reason for leaving cells out of a plan."""
    return [
        f"{reason['reason']} ({len(reason['cells'])} cell{'s' * (len(reason['cells']) > 1)})"
        for reason in planned.get("left_out", [])
    ]


def plan(
    regression: RegressionSpec,
    home: Home,
    run_id: str,
    origin: str = "cli",
    matrix: dict[str, Any] | None = None,
    spark: str = SPARK,
    hosts: Hosts | None = None,
) -> Plan:
    """Check the request, and write the plan that `draft` returns to runs/<run id>/plan.json.

    Raises:
        BadInput: As `draft`, or that run already has a plan.
    """
    path = home.run(run_id) / "plan.json"
    drawn = draft(regression, home, run_id, origin, matrix, spark, hosts)
    if path.exists():
        raise BadInput(f"run {run_id} already has a plan; use a new run id")
    write_json(path, drawn)
    return drawn


def draft(
    regression: RegressionSpec,
    home: Home,
    run_id: str,
    origin: str = "cli",
    matrix: dict[str, Any] | None = None,
    spark: str = SPARK,
    hosts: Hosts | None = None,
) -> Plan:
    """The plan of a run, without writing it.

    Args:
        regression: The request.
        home: LOCKSTEP_HOME.
        run_id: The id of the run.
        origin: The interface that the request came from.
        matrix: The named matrix of the request (matrices.Request.matrix).
        spark: The Spark connection of the run.
        hosts: The preflights of the hosts.

    Returns:
        The plan.

    Raises:
        BadInput: As `imported` and `cells`. Or the run id has another form. Or a cell runs on Spark, and the name of
            the connection is too long. Or a cell runs on another engine, and this machine is not among the hosts.
    """
    if not RUN_ID.fullmatch(run_id):
        raise BadInput(f"a run id must have the form YYYYMMDDTHHMMSSZ-<8 hex digits>, got {run_id!r}")
    data = imported(regression, home)
    specs, left_out = cells(regression, data, hosts)
    able = places(regression, hosts or {})
    workloads, planned = dict[str, PlannedWorkload](), list[PlannedCell]()
    for spec in specs:
        app = registry.load(spec.app)
        params = app.bind(spec.params)
        if known := data.get(spec.app):
            address, events, seed = known["address"], known["events"], known["seed"]
        else:
            events, seed = regression.events, regression.seed
            address = workload.address(app, params, events, seed)
        planned_workload: PlannedWorkload = {
            "app": spec.app, "params": params, "events": events, "seed": seed, "address": address
        }  # fmt: skip
        if known:
            planned_workload["data"] = regression.data[spec.app]
        workloads[address] = planned_workload
        cell: PlannedCell = {
            "cell": spec.cell, "spec": spec.model_dump(mode="json"), "workload": address, "is_bound": spec.is_bound
        }  # fmt: skip
        if isinstance(spec, External):
            if LOCAL not in regression.hosts:
                raise BadInput(f"hosts: executor {spec.executor} runs on this machine only; add {LOCAL!r}")
            planned.append(cell | {"host": LOCAL})
        elif not spec.is_engine:
            if not HOST_NAME.fullmatch(spark):
                raise BadInput(
                    f"spark: cells cannot run on {spark!r}; give the connection a name of up to 60 characters"
                )
            planned.append(cell | {"host": spark})
        elif regression.placement == "every":
            planned += [cell | {"cell": f"{spec.cell}.{host}", "host": host} for host in able[spec.threads]]
        elif able[spec.threads] == lanes(regression, hosts or {}):
            planned.append(cell)
        else:
            planned.append(cell | {"hosts": able[spec.threads]})
    return _empty(run_id, origin, regression.model_dump(mode="json")) | {
        "matrix": matrix, "workloads": list(workloads.values()), "cells": planned, "left_out": left_out
    }  # fmt: skip


def refuse(home: Home, run_id: str, origin: str, request: dict[str, Any], why: str) -> None:
    """Write the plan of a refused request: it has no cells, and `refused` holds the reason.

    An earlier plan of the run stays.
    """
    path = home.run(run_id) / "plan.json"
    if not path.exists():
        write_json(path, _empty(run_id, origin, request) | {"refused": why})


def _empty(run_id: str, origin: str, request: dict[str, Any]) -> Plan:
    created_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "run_id": run_id, "origin": origin, "created_at": created_at, "regression": request,
        "workloads": [], "cells": [], "left_out": [],
    }  # fmt: skip
