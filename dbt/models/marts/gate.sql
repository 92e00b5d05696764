select
  run_id,
  cells.run_at,
  cell,
  cells.app,
  cells.executor,
  cells.strategy,
  cells.`order`,
  cells.threads,
  gates.* except (run_id, cell)
from {{ source('speed', 'gates') }} as gates
left join {{ ref('cells') }} as cells using (run_id, cell)
