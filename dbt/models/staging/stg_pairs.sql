select * except (schema_version)
from {{ source('raw', 'pairs') }}
left anti join {{ ref('quarantine') }} using (run_id)
