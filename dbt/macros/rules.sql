{#
  What every row of a raw table must say. A run with a row that breaks a rule is quarantined: none of its rows is in a
  mart but `quarantine`, which says why.
#}
{% macro rules(table) %}
  {{ return({
    'cells': strategy_rules() + [
      "app is not null and executor is not null and strategy is not null",
      "threads >= 1",
      "events >= 1",
      "is_bound is not null",
      "status in ('ok', 'failed', 'not_run')",
      "verdict in ('equal', 'different', 'invariant_broken', 'failed', 'not_run', 'not_comparable')",
      "status <> 'ok' or (host is not null and spec_digest is not null and workload_address is not null)",
    ],
    'samples': [
      "kind in ('verified', 'peak', 'open_loop')",
      "events >= 0 and outputs >= 0 and dropped_invalid >= 0 and rejected >= 0",
      "coalesce(dropped_late, 0) >= 0 and coalesce(reconfigurations, 0) >= 0 and coalesce(slowest_reconfiguration_us, 0) >= 0",
      "seconds > 0 and events_per_s >= 0",
      "processing_p50_us <= processing_p95_us and processing_p95_us <= processing_p99_us",
      "processing_p99_us <= processing_p999_us and processing_p999_us <= processing_max_us",
      "kind <> 'open_loop' or end_to_end_p50_us <= end_to_end_max_us",
    ],
    'verdicts': [
      "verdict in ('equal', 'different', 'invariant_broken', 'failed', 'not_run', 'not_comparable')",
      "verdict <> 'invariant_broken' or (`check` like 'invariant:%' and different > 0)",
      "verdict <> 'equal' or (coalesce(missing, 0) = 0 and coalesce(extra, 0) = 0 and coalesce(different, 0) = 0 and coalesce(out_of_order, 0) = 0)",
    ],
    'violations': [
      "kind in ('missing', 'extra', 'different', 'out_of_order', 'invariant')",
    ],
    'pairs': [
      "baseline is not null and baseline_ref is not null and build is not null",
      "error is not null or (baseline_seconds > 0 and build_seconds > 0)",
      "error is not null or (baseline_digest is not null and build_digest is not null)",
      "error is not null or first in ('baseline', 'build')",
    ],
  }[table]) }}
{% endmacro %}
