-- What a cell's repetitions say of its speed: the ratio to the compiled loop, which took turns with them. Seconds by
-- themselves say nothing over the nights: these machines' speed swings by factors. A repetition's ratio is that of the
-- two medians of its passes, a cell's the median over its repetitions. Only cells that are right have a speed.
with repetitions as (
  select
    run_id,
    cell,
    count(*) as repetitions,
    median(seconds) as pass_seconds,
    sum(passes * (seconds + loop_seconds)) as measured_seconds,
    median(loop_seconds / seconds) as to_loop,
    max(loop_seconds / seconds) / min(loop_seconds / seconds) - 1 as spread
  from {{ ref('stg_samples') }}
  where kind = 'peak'
  group by run_id, cell
)

select
  cells.run_id,
  cells.run_at,
  cells.cell,
  cells.build,
  -- One way of executing one request on one host: a series. It goes on when the source of the application changes.
  concat_ws('/', cells.spec_digest, sha2(cells.params, 256), cells.events,
    coalesce(cast(cells.seed as string), cells.workload_address), cells.host) as series,
  -- What the ratios of a series have to have in common to be comparable: the source is part of the workload's address,
  -- and the loop of the yardstick. Another epoch never reads as a change of speed.
  concat_ws('/', cells.workload_address, cells.yardstick) as epoch,
  repetitions.repetitions,
  repetitions.pass_seconds,
  repetitions.measured_seconds,
  repetitions.to_loop,
  repetitions.spread,
  cells.steal,
  cells.others,
  case
    when repetitions.to_loop is null then 'too_short'
    -- Where others have the cores, a repetition also ends too early: that is not for want of events. The loop has one
    -- thread. What slows it down slows a cell on one thread as much, so their ratio stays.
    when cells.threads > 1 and cells.steal + cells.others > {{ var('most_disturbance') }} then 'too_noisy'
    when repetitions.measured_seconds < {{ var('shortest_measuring') }} then 'too_short'
    when repetitions.spread > {{ var('most_spread') }} then 'too_noisy'
  end as unfit
from {{ ref('stg_cells') }} as cells
inner join repetitions using (run_id, cell)
-- Without a loop there is nothing to compare with, and where a pass takes a millisecond and more somebody wanted it so.
where
  cells.verdict = 'equal'
  and (repetitions.to_loop is not null or repetitions.pass_seconds < {{ var('shortest_pass') }})
