select * except (schema_version)
from {{ source('raw', 'samples') }}
left anti join {{ ref('quarantine') }} using (run_id)
