{#
  Counts the rows of every mart for dbt's documentation, which otherwise says of each that it has 0 rows.

  dbt leaves the temporary views of incremental models in the session, and `dbt docs generate` stumbles over a view
  without a schema, so this removes them.
#}
{% macro count_rows() %}
  {% for node in graph.nodes.values() if node.resource_type == 'model' and node.config.materialized != 'view' %}
    {% set relation = api.Relation.create(schema=node.schema, identifier=node.alias) %}
    {% do run_query('drop view if exists ' ~ node.alias ~ '__dbt_tmp') %}
    {% do run_query('analyze table ' ~ relation ~ ' compute statistics') %}
  {% endfor %}
{% endmacro %}
