select
  run_id,
  cells.run_at,
  cell,
  cells.app,
  cells.executor,
  cells.strategy,
  cells.`order`,
  cells.threads,
  cells.host,
  cells.build,
  trends.series,
  trends.to_loop,
  trends.repetitions,
  trends.pass_seconds,
  trends.measured_seconds,
  trends.spread,
  cells.steal,
  cells.others,
  trends.* except (run_id, cell, series, to_loop, repetitions, pass_seconds, measured_seconds, spread)
from {{ source('speed', 'trends') }} as trends
inner join {{ ref('cells') }} as cells using (run_id, cell)
