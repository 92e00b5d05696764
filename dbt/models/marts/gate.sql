-- Compares this build with the build of another commit, the baseline, by the rule in macros/gate.sql.
with compared as (
  select
    run_id,
    cell,
    min(baseline) as baseline,
    min(baseline_ref) as baseline_ref,
    min(build) as build,
    min(host) as host,
    count_if(pair >= 0) as pairs,
    min(pair) as first_pair,
    median(baseline_seconds) as baseline_seconds,
    median(build_seconds) as build_seconds,
    max(steal) as steal,
    max(others) as others,
    bool_or(baseline_environment <> environment) as environment_changed,
    max(error) as error,
    coalesce(bool_or(baseline_digest <> build_digest), false) as differs,
    collect_list(ln(baseline_seconds / build_seconds)) as faster
  from {{ ref('stg_pairs') }}
  group by run_id, cell
),

judged as (
  select
    *,
    {{ gate('faster') }} as found
  from compared
)

select
  judged.run_id,
  cells.run_at,
  judged.cell,
  cells.app,
  cells.executor,
  cells.strategy,
  cells.`order`,
  cells.threads,
  judged.host,
  judged.baseline,
  judged.baseline_ref,
  judged.build,
  judged.pairs,
  judged.baseline_seconds,
  judged.build_seconds,
  judged.steal,
  judged.others,
  judged.environment_changed,
  case
    when judged.first_pair < 0 then 'not_judged'
    when judged.error is not null then 'failed'
    when judged.differs then 'different'
    when least(judged.baseline_seconds, judged.build_seconds) < {{ var('shortest_pass') }} then 'too_short'
    else judged.found.verdict
  end as verdict,
  case
    when judged.error is not null then judged.error
    when judged.differs then 'the two builds have different results'
  end as reason,
  judged.found.change,
  judged.found.change_low,
  judged.found.change_high,
  judged.found.smallest
from judged
inner join {{ ref('cells') }} as cells using (run_id, cell)
