{% set judged = [
  'nights', 'level', 'noise', 'smallest', 'since_run', 'since_at', 'since_build', 'found_run', 'change', 'change_low',
  'change_high', 'edited_build', 'reference_build', 'bridge_run',
] %}
-- Judges the nights of each series in the order of the runs, by the rule in macros/trend.sql. A night knows what the gate
-- said last of its epoch, because the run that the gate measured may itself be unfit to be compared.
with points as (
  select
    speed.*,
    last_value(
      if(gate.run_id is null, null, named_struct('run_id', gate.run_id, 'baseline', gate.baseline, 'verdict', gate.verdict,
        'change', gate.change, 'change_low', gate.change_low, 'change_high', gate.change_high, 'smallest', gate.smallest)),
      true
    ) over (partition by speed.series, speed.epoch order by speed.run_id) as gate
  from {{ ref('int_cell_speed') }} as speed
  left join {{ ref('gate') }} as gate using (run_id, cell)
),

walked as (
  select
    series,
    inline({{ trend('points') }})
  from (
    select
      series,
      array_sort(collect_list(
        named_struct('run_id', run_id, 'run_at', run_at, 'build', build, 'y', ln(to_loop), 'epoch', epoch, 'gate', gate)
      )) as points
    from points
    where unfit is null
    group by series
  ) as fit
)

select
  cells.run_id,
  cells.run_at,
  cells.cell,
  cells.app,
  cells.executor,
  cells.strategy,
  cells.`order`,
  cells.threads,
  cells.host,
  cells.build,
  speed.series,
  speed.to_loop,
  speed.repetitions,
  speed.pass_seconds,
  speed.measured_seconds,
  speed.spread,
  speed.steal,
  speed.others,
  coalesce(speed.unfit, walked.verdict) as verdict,
  {% for column in judged %}
  walked.{{ column }}{{ ',' if not loop.last }}
  {% endfor %}
from {{ ref('int_cell_speed') }} as speed
inner join {{ ref('cells') }} as cells using (run_id, cell)
left join walked using (series, run_id)
