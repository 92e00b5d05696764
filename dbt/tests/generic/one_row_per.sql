{#
  The rows of a model are as its YAML says: no two agree in `columns`, none has a null there or in a column that the contract
  declares `not_null`, and each makes every one of `rules` true. A rule that comes out null does not hold. Spark does not
  enforce `not_null` on Parquet.

  All of it is one query, because a query costs more than its rows do.
#}
{% test one_row_per(model, columns, rules=[]) %}
{%- set conditions = rules | list -%}
{%- for column in columns -%}
  {%- do conditions.append('`' ~ column ~ '` is not null') -%}
{%- endfor -%}
{%- if execute -%}
  {%- for node in graph.nodes.values() if node.resource_type == 'model' and node.alias == model.identifier -%}
    {%- for column in node.columns.values() if 'not_null' in column.constraints | map(attribute='type') | map('string') -%}
      {%- do conditions.append('`' ~ column.name ~ '` is not null') -%}
    {%- endfor -%}
  {%- endfor -%}
{%- endif -%}
select `{{ columns | join('`, `') }}`, rows_alike, are_rules_kept
from (
  select
    *,
    count(*) over (partition by `{{ columns | join('`, `') }}`) as rows_alike,
    coalesce(({{ conditions | unique | join(') and (') }}), false) as are_rules_kept
  from {{ tested(model) }}
) as rows_beside
where rows_alike > 1 or not are_rules_kept
{% endtest %}
