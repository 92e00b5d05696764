{#
  Declares the tables that dbt reads or changes over their folders: each raw table, the verdicts on
  speed, and each mart that is built month by month. Files are the only state, so each command of dbt makes the tables anew, whatever the server's catalog has: no
  table in a new server, and tables with other columns, folders or lists of files in an old one.

  - The YAML states the columns. They are not inferred, so a table without files is empty instead of an error. Every raw
    file has these columns: `lockstep warehouse` refuses others before dbt starts.
  - All tables are external, and Spark lists the folders of a mart's months itself (profiles.yml). So a table shows all
    files of its folder, and dropping it touches none.
  - A build of every month makes the marts itself.
#}
{% macro declare_tables() %}
  {% if execute and flags.WHICH in ('build', 'run', 'test', 'show', 'compile', 'freshness') %}
    {# Who asks for freshness alone has dbt make no schema. #}
    {% do run_query('create schema if not exists ' ~ target.schema) %}
    {# Each statement takes a while: a raw table that no model reads needs none. #}
    {% set read = graph.nodes.values() | map(attribute='depends_on.nodes', default=[]) | sum(start=[]) %}
    {% set ours = graph.sources.values() | selectattr('source_name', 'in', ['raw', 'speed']) %}
    {% for source in ours if source.unique_id in read %}
      {% set relation = api.Relation.create(schema=source.schema, identifier=source.identifier, type='table') %}
      {% set folder = env_var('LOCKSTEP_HOME') ~ '/warehouse/' ~ source.source_name ~ '/' ~ source.name %}
      {% do declare_table(relation, source.columns, folder) %}
    {% endfor %}
    {% if not flags.FULL_REFRESH and flags.WHICH != 'freshness' %}
      {# A model of another folder than marts begins anew with each server: its table does not outlive one. #}
      {% for node in graph.nodes.values() if node.config.materialized == 'incremental' and node.config.location_root %}
        {% set relation = api.Relation.create(schema=node.schema, identifier=node.alias, type='table') %}
        {% do declare_table(relation, node.columns, node.config.location_root ~ '/' ~ node.alias, node.config.partition_by) %}
      {% endfor %}
    {% endif %}
  {% endif %}
{% endmacro %}

{# Declares one table over a folder. #}
{% macro declare_table(relation, columns, folder, partition_by=[]) %}
  {% set typed = [] %}
  {% for column in columns.values() %}
    {% do typed.append('`' ~ column.name ~ '` ' ~ column.data_type) %}
  {% endfor %}
  {% if adapter.get_relation(none, relation.schema, relation.identifier) %}
    {% do run_query('drop table ' ~ relation) %}
  {% endif %}
  {% do run_query(
    'create table ' ~ relation ~ ' (' ~ typed | join(', ') ~ ') using parquet'
    ~ (' partitioned by (' ~ partition_by | join(', ') ~ ')' if partition_by else '')
    ~ ' location \'' ~ folder ~ '\''
  ) %}
  {% do adapter.cache_added(relation) %}
{% endmacro %}
