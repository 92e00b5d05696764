select
  * except (schema_version),
  greatest(coalesce(expected_rows, 0), coalesce(actual_rows, 0)) as rows_compared
from {{ source('raw', 'verdicts') }}
