select
  run_id,
  min(run_at) as run_at,
  count(*) as cells,
  count_if(verdict = 'equal') as equal,
  count_if(verdict = 'different') as different,
  count_if(verdict = 'invariant_broken') as invariant_broken,
  count_if(verdict = 'failed') as failed,
  count_if(verdict = 'not_run') as not_run,
  count_if(verdict = 'not_comparable') as not_comparable,
  -- As streaming_core/regression/verdict.py says it of a run.
  bool_and(verdict in ('equal', 'not_comparable')) as is_green,
  max(build) as build,
  concat_ws(', ', sort_array(collect_set(host))) as hosts
from {{ ref('cells') }}
group by run_id
