select
  * except (schema_version),
  to_timestamp(substr(run_id, 1, 16), "yyyyMMdd'T'HHmmss'Z'") as run_at
from {{ source('raw', 'cells') }}
left anti join {{ ref('quarantine') }} using (run_id)
