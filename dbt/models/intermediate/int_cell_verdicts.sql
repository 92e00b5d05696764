-- The roll-up. The order of the cases is the rule: a result that differs outranks everything else, a crash outranks the
-- allowance a bound has, and `equal` is what is left when nothing at all speaks against it.
with checks as (
  select
    run_id,
    cell,
    count(*) as checks,
    count_if(verdict = 'equal' and rows_compared > 0) as agreed,
    count_if(verdict = 'different') as different,
    count_if(verdict = 'failed') as failed,
    count_if(verdict = 'not_run') as not_run,
    -- Rows tell more than digests do.
    min_by(
      concat(`check`, ': ', finding),
      concat(case `check` when 'outputs' then 0 when 'digest' then 2 else 1 end, `check`)
    ) filter (where finding <> '') as first_finding
  from {{ ref('stg_verdicts') }}
  group by run_id, cell
),

passes as (
  select run_id, cell, count(distinct digest) as digests
  from {{ ref('stg_samples') }}
  group by run_id, cell
),

judged as (
  select
    cells.run_id,
    cells.cell,
    cells.error,
    coalesce(checks.checks, 0) as checks,
    checks.first_finding,
    coalesce(passes.digests, 0) as digests,
    case
      when not cells.is_bound and (checks.different > 0 or passes.digests > 1) then 'different'
      when cells.status = 'failed' or checks.failed > 0 then 'failed'
      when cells.status <> 'ok' or checks.checks is null or checks.not_run > 0 then 'not_run'
      when cells.is_bound then 'not_comparable'
      when checks.agreed = checks.checks then 'equal'
      else 'not_run'
    end as verdict
  from {{ ref('stg_cells') }} as cells
  left join checks using (run_id, cell)
  left join passes using (run_id, cell)
)

select
  run_id,
  cell,
  verdict,
  checks,
  case verdict
    when 'equal' then null
    when 'different' then coalesce(first_finding, concat('repetitions: ', digests, ' different digests'))
    when 'not_comparable' then coalesce(first_finding, 'a bound, not a result')
    else coalesce(error, first_finding, 'nothing was compared')
  end as reason
from judged
