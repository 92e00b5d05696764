{#
  Declares every table that dbt reads over its folder, warehouse/<source>/<table>, with the columns its YAML lists.

  The columns are stated, not inferred, so that a table without files is empty instead of an error. Every file has these
  columns: `lockstep warehouse` refuses others before dbt starts. The tables are external and have no registered
  partitions: dropping one touches no file, and a new run folder is seen without a repair. A build of every month makes
  the tables again, because their columns may have changed.
#}
{% macro create_raw_tables() %}
  {% if execute and flags.WHICH in ('build', 'run', 'test', 'show', 'compile', 'freshness') %}
    {# Who asks for freshness alone has dbt make no schema. #}
    {% do run_query('create schema if not exists ' ~ target.schema) %}
    {% for source in graph.sources.values() %}
      {% set relation = api.Relation.create(schema=source.schema, identifier=source.identifier, type='table') %}
      {% if flags.FULL_REFRESH %}
        {% do run_query('drop table if exists ' ~ relation) %}
      {% endif %}
      {% set columns = [] %}
      {% for column in source.columns.values() %}
        {% do columns.append('`' ~ column.name ~ '` ' ~ column.data_type) %}
      {% endfor %}
      {% do run_query(
        'create table if not exists ' ~ relation ~ ' (' ~ columns | join(', ') ~ ') using parquet location \''
        ~ env_var('LOCKSTEP_HOME') ~ '/warehouse/' ~ source.source_name ~ '/' ~ source.name ~ '\''
      ) %}
      {% do adapter.cache_added(relation) %}
    {% endfor %}
  {% endif %}
{% endmacro %}
