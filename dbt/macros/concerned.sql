{#
  True for the rows of the months that a build replaces; for all rows, if it makes the table anew.

  infra/services/months.py names the months: 2026-01,2026-02. The result is a prefix of run ids, and raw results have a
  folder for each run, so Spark opens no file of another month. If dbt does not find the table, it makes all of it: so a
  failure to look it up loses no history.
#}
{% macro concerned(run_id='run_id') -%}
{%- if is_incremental() -%}
({% for month in env_var('LOCKSTEP_MONTHS', '2').split(',') -%}
{{ run_id }} like '{{ month | replace('-', '') }}%'{{ ' or ' if not loop.last }}
{%- endfor %})
{%- else -%}
true
{%- endif -%}
{%- endmacro %}
