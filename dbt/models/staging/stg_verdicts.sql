select
  * except (schema_version),
  greatest(coalesce(expected_rows, 0), coalesce(actual_rows, 0)) as rows_compared,
  concat_ws(
    '; ',
    nullif(detail, ''),
    if(missing > 0, concat(missing, ' missing'), null),
    if(extra > 0, concat(extra, ' extra'), null),
    if(different > 0, concat(different, if(verdict = 'invariant_broken', ' break it', ' different')), null),
    if(out_of_order > 0, concat(out_of_order, ' out of order'), null),
    if(verdict = 'equal' and coalesce(expected_rows, 0) = 0 and coalesce(actual_rows, 0) = 0, 'no row was compared', null)
  ) as finding
from {{ source('raw', 'verdicts') }}
left semi join {{ ref('stg_cells') }} using (run_id)
