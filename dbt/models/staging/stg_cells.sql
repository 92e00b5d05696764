select
  cells.* except (schema_version, verdict, reason{% for name in called_now() %}, {{ name }}{% endfor %}),
  {% for name, expression in called_now().items() -%}
  {{ expression }} as {{ name }},
  {% endfor -%}
  -- A cell that was loaded before raw results held verdicts has been judged since.
  coalesce(cells.verdict, judged.verdict) as verdict,
  coalesce(cells.reason, judged.reason) as reason,
  to_timestamp(substr(cells.run_id, 1, 16), "yyyyMMdd'T'HHmmss'Z'") as run_at
from {{ source('raw', 'cells') }} as cells
left join {{ source('judged', 'cells') }} as judged on cells.run_id = judged.run_id and cells.cell = judged.cell
