"""The parts that two results of an application must share: everything, or, without order, what it declares.

A result is summed up as two digests, one of outputs, one of final state. Those of an engine's run and of the oracle's
are the same if and (as far as 64 bits tell) only if the results agree.
"""

from __future__ import annotations

import pyarrow as pa

from streaming_core.data.digest import digest_table, state_digest
from streaming_core.language.application import App


def outputs_digest(app: App, order: str, outputs: pa.Table) -> tuple[int, int]:
    """Digest of outputs (with seq and sub), or of some of them: digests of parts add up."""
    if order == "none":
        assert app.unordered is not None  # RunSpec.check
        return digest_table(outputs.select(app.unordered.columns))
    return digest_table(outputs, ("seq", "sub"))


def states_digest(app: App, order: str, states: dict[str, pa.Table]) -> str:
    """Digest of final tables and keyed states, by name."""
    if order == "none":
        assert app.unordered is not None  # RunSpec.check
        states = {name: states[name] for name in app.unordered.states}
    return state_digest(states)
