select * except (schema_version)
from {{ source('raw', 'pairs') }}
