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
    min_by(
      concat(`check`, ': ', coalesce(detail, if(verdict = 'equal', 'no row was compared', verdict))), `check`
    ) filter (where verdict <> 'equal' or rows_compared = 0) as first_objection
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
    checks.first_objection,
    coalesce(passes.digests, 0) as digests,
    case
      when not cells.is_bound and (checks.different > 0 or passes.digests > 1) then 'different'
      when cells.status = 'failed' or checks.failed > 0 then 'failed'
      when cells.status <> 'ok' then 'not_run'
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
  case
    when verdict = 'equal' then null
    when verdict = 'failed' then coalesce(error, first_objection, 'no reason was given')
    when first_objection is not null then first_objection
    when digests > 1 then concat('repetitions: ', digests, ' different digests')
    when verdict = 'not_comparable' then 'a bound, not a result'
    when verdict = 'not_run' then coalesce(error, if(checks = 0, 'nothing was compared', 'it never ran'))
  end as reason
from judged
