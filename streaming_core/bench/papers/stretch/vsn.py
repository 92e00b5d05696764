"""What the experiments of STRETCH share: the ways of sharing that they compare, and the latencies."""

from __future__ import annotations

from streaming_core.run.way import AXES

OURS, PUBLISHED, SHARE_NOTHING = "vsn", "vsn_esg", "sn"
# The ways of sharing that this build has. PUBLISHED, on the elastic ScaleGate, joins them once the runtime has it.
PARALLELISMS = tuple(one for one in (OURS, PUBLISHED, SHARE_NOTHING) if one in AXES["parallelism"])
SHARED = PARALLELISMS[:-1]
MEAN, P99 = "end_to_end_mean_us", "end_to_end_p99_us"
