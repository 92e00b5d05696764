-- The verdict on a cell beside what it rests on. How one follows from the other is said once, in
-- streaming_core/regression/verdict.py; here it is only held against the rows.
with checks as (
  select
    run_id,
    cell,
    count(*) as checks,
    count_if(verdict = 'equal' and rows_compared > 0) as agreed,
    count_if(verdict = 'different') as different,
    count_if(verdict = 'invariant_broken') as broken
  from {{ ref('stg_verdicts') }}
  group by run_id, cell
),

passes as (
  select run_id, cell, count(distinct digest) as digests
  from {{ ref('stg_samples') }}
  group by run_id, cell
)

select
  cells.run_id,
  cells.cell,
  cells.verdict,
  cells.reason,
  cells.status,
  cells.is_bound,
  coalesce(checks.checks, 0) as checks,
  coalesce(checks.agreed, 0) as agreed,
  coalesce(checks.different, 0) as different,
  coalesce(checks.broken, 0) as broken,
  coalesce(passes.digests, 0) as digests
from {{ ref('stg_cells') }} as cells
left join checks using (run_id, cell)
left join passes using (run_id, cell)
