{#
  Counts the rows of every table for dbt's documentation, which otherwise says of each that it has 0 rows.

  dbt leaves the temporary views of incremental models in the session, and `dbt docs generate` stumbles over a view
  without a schema, so this removes them.
#}
{% macro count_rows() %}
  {% for node in graph.nodes.values() if node.resource_type in ('model', 'seed', 'snapshot') %}
    {% do run_query('drop view if exists ' ~ node.alias ~ '__dbt_tmp') %}
    {# An ephemeral model has no table, nor has one that failed. #}
    {% set relation = adapter.get_relation(none, node.schema, node.alias) %}
    {% if relation and relation.type == 'table' %}
      {% do run_query('analyze table ' ~ relation ~ ' compute statistics') %}
    {% endif %}
  {% endfor %}
{% endmacro %}
