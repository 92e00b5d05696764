"""A case: an application, its events, a way of executing, and the symptom that they show.

A folder keeps a case and travels: it needs the application's source, and nothing else.
"""

from __future__ import annotations

import dataclasses
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core import storage
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.run.way import RunSpec

FILE, EVENTS = "case.json", "events.parquet"
Kind = Literal["result", "failure", "crash", "hang", "oracle", "invariant", "property"]


@dataclass(frozen=True)
class Symptom:
    """How a case goes wrong. Two cases go wrong in the same way if their symptoms are equal.

    Attributes:
        kind: `result`: a run differs from the oracle. `failure`: a run fails and the oracle does not, or fails
            otherwise. `crash`: a signal ended the process. `hang`: the run did not end. `oracle`: the interpreted and
            the compiled oracle disagree. `invariant`: the oracle's result breaks an invariant. `property`: the
            application breaks a property.
        name: What differs, without values: the first table that differs, `order`, `counts`; the operator and the
            exception; the signal; the invariant; the property.
    """

    kind: Kind
    name: str = ""

    @property
    def needs_run(self) -> bool:
        """Whether the engine shows it. Otherwise the oracle alone does."""
        return self.kind in ("result", "failure", "crash", "hang")

    @property
    def sentence(self) -> str:
        """The symptom as people read it."""
        return {
            "result": f"the result differs from the oracle's: {self.name}",
            "failure": f"the run fails, the oracle does not: {self.name}",
            "crash": f"the process ends by signal {self.name}",
            "hang": "the run does not end",
            "oracle": f"the interpreted and the compiled oracle disagree: {self.name}",
            "invariant": f"an invariant does not hold: {self.name}",
            "property": f"a property does not hold: {self.name}",
        }[self.kind]


@dataclass(frozen=True)
class Case:
    """All that a trial needs.

    Attributes:
        spec: The way of executing, with application, parameters, and injected faults. If the symptom does not need a
            run, only application and parameters matter.
        events: The events, numbered from 0 in `seq`.
        symptom: How it goes wrong; None if that is not known.
        rate: The share of trials that show the symptom, as measured; 1.0 if all did.
        origin: How the events were drawn, for people.
    """

    spec: RunSpec
    events: pa.Table
    symptom: Symptom | None = None
    rate: float = 1.0
    origin: str = ""

    @property
    def app(self) -> App:
        """The application."""
        return registry.load(self.spec.app)

    @property
    def params(self) -> dict[str, Any]:
        """The value of each parameter."""
        return self.app.bind(self.spec.params)

    @property
    def digest(self) -> str:
        """Sixteen hex digits over application, parameters, events, way and symptom."""
        return storage.digest_of(self._about | {"events": self.events.to_pydict().__repr__()})

    @property
    def _about(self) -> dict[str, Any]:
        symptom = self.symptom and dataclasses.asdict(self.symptom)
        return {"spec": self.spec.model_dump(mode="json"), "symptom": symptom}

    def changed(self, **fields: Any) -> Case:
        """This case with other fields."""
        return dataclasses.replace(self, **fields)

    def with_events(self, events: pa.Table) -> Case:
        """This case with other events, numbered anew."""
        numbers = pa.array(range(events.num_rows), events.schema.field("seq").type)
        return self.changed(events=events.set_column(0, events.schema.field("seq"), numbers))

    def with_spec(self, **fields: Any) -> Case:
        """This case with other fields of its spec.

        Raises:
            BadInput: They do not go together, or the application does not run in this way.
        """
        spec = RunSpec.parse(self.spec.model_dump(mode="json") | fields)
        spec.check(self.app)
        return self.changed(spec=spec)

    def write_workload(self, folder: Path) -> None:
        """Write the events as a workload into a new folder."""
        with storage.appearing(folder) as temporary:
            part = workload.write_part(temporary, 0, self.events)
            workload.seal_imported(temporary, self.app, self.params, [part], {"case": self.origin})

    def save(self, folder: Path) -> None:
        """Write the files of the case into a folder."""
        data = io.BytesIO()
        pq.write_table(self.events, data)
        (folder / EVENTS).write_bytes(data.getvalue())
        about = self._about | {"rate": self.rate, "origin": self.origin}
        storage.write_json(folder / FILE, about)

    @staticmethod
    def load(folder: Path) -> Case:
        """Read the case of a folder.

        Raises:
            BadInput: The folder holds no case, or one of an application that is not here.
        """
        try:
            about = json.loads((folder / FILE).read_bytes())
            events = pq.read_table(folder / EVENTS)
            symptom = about["symptom"] and Symptom(**about["symptom"])
            if symptom is not None and symptom.kind not in get_args(Kind):
                raise ValueError(f"unknown symptom {symptom.kind!r}")
            spec, rate, origin = RunSpec.parse(about["spec"]), float(about["rate"]), str(about["origin"])
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise BadInput(f"{folder} holds no case: {error}") from None
        case = Case(spec, events, symptom, rate, origin)
        spec.check(case.app)
        expected = workload.schema(case.app, case.params)
        if not events.schema.equals(expected):
            raise BadInput(f"{folder}: the events do not fit application {spec.app}: its records have changed")
        return case
