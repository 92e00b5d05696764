{#
  True for the rows of the months that a build replaces; for all rows, if it makes the table anew.

  infra/history/months.py names the months: 2026-01,2026-02. The result is a prefix of run ids, and raw results have a
  folder for each run, so Spark opens no file of another month. If dbt does not find the table, it makes all of it: so a
  failure to look it up loses no history.
#}
{% macro concerned(run_id='run_id') -%}
{{ in_changed_months(run_id) if is_incremental() else 'true' }}
{%- endmacro %}

{% macro in_changed_months(run_id) -%}
({% for month in env_var('LOCKSTEP_MONTHS', '2').split(',') -%}
{{ run_id }} like '{{ month | replace('-', '') }}%'{{ ' or ' if not loop.last }}
{%- endfor %})
{%- endmacro %}

{#
  The rows of a relation that a test looks at. With `meta: {rows: changed months}` (dbt_project.yml) these are the rows that
  the build looks at. Raw results never change, so those of other months passed in an earlier build.
#}
{% macro tested(relation) -%}
{%- if (config.get('meta') or {}).get('rows') == 'changed months' and not flags.FULL_REFRESH -%}
(select * from {{ relation }} where {{ in_changed_months('run_id') }})
{%- else -%}
{{ relation }}
{%- endif -%}
{%- endmacro %}
