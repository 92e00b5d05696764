-- A series is one way of executing one workload on one host. How its speed changes is said by the mart `speed`: events
-- per second of two nights say little on machines that are shared.
with measured as (
  select
    run_id,
    run_at,
    cell,
    app,
    params,
    executor,
    strategy,
    `order`,
    threads,
    events,
    host,
    build,
    concat_ws('/', spec_digest, workload_address, host) as series,
    peak_samples as samples,
    median_events_per_s,
    min_events_per_s,
    max_events_per_s,
    cpu_ns,
    energy_nj,
    month,
    -- What one thread did in the same run, every other choice being the same.
    max(if(threads = 1, median_events_per_s, null)) over (
      partition by run_id, workload_address, host, {{ way() | join(', ') }}
    ) as one_thread_events_per_s
  from {{ ref('cells') }}
  where verdict = 'equal' and {{ concerned() }}
)

select
  * except (month, one_thread_events_per_s),
  median_events_per_s / one_thread_events_per_s as speedup,
  month
from measured
