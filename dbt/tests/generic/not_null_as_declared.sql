{# No column that the model's contract declares `not_null` holds a null. Spark does not enforce it on Parquet. #}
{% test not_null_as_declared(model) %}
{%- set columns = [] -%}
{%- if execute -%}
  {%- for node in graph.nodes.values() if node.resource_type == 'model' and node.alias == model.identifier -%}
    {%- for column in node.columns.values() if 'not_null' in column.constraints | map(attribute='type') | map('string') -%}
      {%- do columns.append('`' ~ column.name ~ '`') -%}
    {%- endfor -%}
  {%- endfor -%}
  {%- if not columns -%}
    {{ exceptions.raise_compiler_error(model ~ ' declares no column not_null') }}
  {%- endif -%}
{%- endif -%}
select {{ columns | join(', ') or '*' }}
from {{ tested(model) }}
where {{ columns | join(' is null or ') or 'true' }} is null
{% endtest %}
