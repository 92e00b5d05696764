-- Speed and processing latency come from the passes at peak rate, end-to-end latency from the open-loop ones: a peak
-- pass has no intended arrival times, and an open-loop pass is as fast as its rate. The verified pass writes files and
-- counts for neither.
select
  run_id,
  cell,
  count_if(kind = 'peak') as peak_samples,
  median(events_per_s) filter (where kind = 'peak') as median_events_per_s,
  min(events_per_s) filter (where kind = 'peak') as min_events_per_s,
  max(events_per_s) filter (where kind = 'peak') as max_events_per_s,
  {% for p in ['p50', 'p95', 'p99', 'p999', 'max'] %}
  median(processing_{{ p }}_us) filter (where kind = 'peak') as processing_{{ p }}_us,
  {% endfor %}
  count_if(kind = 'open_loop') as open_loop_samples,
  {% for p in ['p50', 'p95', 'p99', 'p999', 'max'] %}
  median(end_to_end_{{ p }}_us) filter (where kind = 'open_loop') as end_to_end_{{ p }}_us,
  {% endfor %}
  {% for part in ['useful', 'sync', 'lock', 'remote', 'other'] %}
  median({{ part }}_s) filter (where kind = 'peak') as {{ part }}_s,
  {% endfor %}
  median(cpu_seconds) filter (where kind = 'peak') as cpu_seconds,
  median(cpu_seconds * 1e9 / nullif(events, 0)) filter (where kind = 'peak') as cpu_ns,
  median(energy_joules * 1e9 / nullif(events, 0)) filter (where kind = 'peak') as energy_nj,
  max(outputs) filter (where kind = 'verified') as outputs,
  max(dropped_invalid) as dropped_invalid,
  max(dropped_late) as dropped_late,
  max(reconfigurations) as reconfigurations,
  max(slowest_reconfiguration_us) as slowest_reconfiguration_us,
  max(rejected) as rejected
from {{ ref('stg_samples') }}
group by run_id, cell
