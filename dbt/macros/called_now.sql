{#
  The columns of raw cells with words that have another name since version 7 of the schema, and what each is now. `strategy`
  is made of such words, joined by hyphens.
#}
{% macro called_now() %}
  {% set columns, strategy = {}, namespace(now="concat('-', strategy, '-')") %}
  {% for name, words in var('renamed').items() %}
    {% set cases = [] %}
    {% for old, new in words.items() %}
      {% do cases.append("when '" ~ old ~ "' then '" ~ new ~ "'") %}
      {% set strategy.now = "replace(" ~ strategy.now ~ ", '-" ~ old ~ "-', '-" ~ new ~ "-')" %}
    {% endfor %}
    {% do columns.update({name: "if(schema_version < 7, case " ~ name ~ " " ~ cases | join(' ') ~ " else " ~ name ~ " end, "
      ~ name ~ ")"}) %}
  {% endfor %}
  {% do columns.update({'strategy': "if(schema_version < 7, trim('-' from " ~ strategy.now ~ "), strategy)"}) %}
  {{ return(columns) }}
{% endmacro %}
