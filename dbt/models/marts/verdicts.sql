with evidence as (
  select
    run_id,
    cell,
    `check`,
    count(*) as violations,
    min_by(named_struct('kind', kind, 'seq', seq, 'sub', sub), rank) as first
  from {{ ref('stg_violations') }}
  group by run_id, cell, `check`
)

select
  verdicts.*,
  cells.run_at,
  cells.executor,
  cells.strategy,
  cells.threads,
  cells.is_bound,
  coalesce(evidence.violations, 0) as violations,
  evidence.first.kind as first_violation,
  evidence.first.seq as first_seq,
  evidence.first.sub as first_sub,
  date_format(cells.run_at, 'yyyy-MM') as month
from {{ ref('stg_verdicts') }} as verdicts
left join {{ ref('stg_cells') }} as cells using (run_id, cell)
left join evidence using (run_id, cell, `check`)
where {{ concerned('verdicts.run_id') }}
