{% for table in ('cells', 'samples', 'verdicts', 'violations', 'pairs') %}
select
  run_id,
  '{{ table }}' as table_name,
  count(*) as rows_broken,
  min(concat_ws('; '
    {%- for rule in rules(table) %},
    if(coalesce({{ rule }}, false), null, "{{ rule | replace('"', '') }}")
    {%- endfor %})) as reason
from {{ source('raw', table) }}
where not coalesce(({{ rules(table) | join(') and (') }}), false)
group by run_id
{{ 'union all' if not loop.last }}
{% endfor %}
