select * except (schema_version)
from {{ source('raw', 'violations') }}
left anti join {{ ref('quarantine') }} using (run_id)
