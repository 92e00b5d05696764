select * except (schema_version)
from {{ source('raw', 'expectations') }}
left semi join {{ ref('stg_cells') }} using (run_id)
