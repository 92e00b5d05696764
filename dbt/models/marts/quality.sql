select
  run_id,
  to_timestamp(substr(run_id, 1, 16), "yyyyMMdd'T'HHmmss'Z'") as run_at,
  data_set,
  number,
  `column`,
  expectation,
  rule,
  severity,
  success,
  observed,
  observed_value,
  low,
  high,
  unexpected_share,
  error,
  date_format(to_timestamp(substr(run_id, 1, 16), "yyyyMMdd'T'HHmmss'Z'"), 'yyyy-MM') as month
from {{ ref('stg_expectations') }}
where {{ concerned() }}
