{#
  The rule of the trend for one series, night by night (docs/explanation/speed-verdicts.md), as one expression of Spark SQL.
  tests/dbt/test_trend.py compares it with the same rule in Python.

  `points`: an array, in order, of struct<run_id string, run_at timestamp, build string, y double>; y is the logarithm of
  the ratio to the compiled loop. The result: an array with, per point, what the mart `speed` has of it.
#}
{% macro trend(points) %}
{#- Nights: that a decision looks at; that a baseline has at most; from which noise is estimated; after which a new level
    is judged again; before a decision in which a change may have begun. -#}
{%- set new, most, enough, again, back = 3, 60, 12, 5, 7 -%}
{#- The least noise and the least change that are believed, in logarithms; from which noise on there is no verdict. -#}
{%- set least_noise, least_change, useless = '0.002D', '0.02D', '0.25D' -%}
{%- set point = 'struct<run_id:string, run_at:timestamp, build:string, y:double>' -%}
{%- set night = 'struct<run_id:string, verdict:string, nights:int, level:double, noise:double, smallest:double, '
  ~ 'since_run:string, since_at:timestamp, since_build:string, found_run:string, change:double, change_low:double, '
  ~ 'change_high:double>' -%}
aggregate(
  {{ points }},
  named_struct(
    -- The nights since the last change, the latest of them; the noise, and from how many nights it was estimated.
    'kept', cast(array() as array<{{ point }}>), 'nights', 0, 'noise', cast(null as double), 'estimated', 0,
    -- The level before the last change, from how many nights; where it began, and the run in which it was found.
    'before', cast(null as double), 'before_nights', 0, 'since', cast(null as {{ point }}), 'found', cast(null as string),
    'judged', cast(array() as array<{{ night }}>)
  ),
  (state, p) -> {{ let('k', 'array_append(slice(state.kept, greatest(1, size(state.kept) - ' ~ (most + new - 2)
    ~ '), ' ~ (most + new) ~ '), p)',
  let('old', 'transform(slice(k, 1, greatest(0, size(k) - ' ~ new ~ ')), one -> one.y)',
  let('fresh', 'transform(slice(k, greatest(1, size(k) - ' ~ (new - 1) ~ '), ' ~ new ~ '), one -> one.y)',
  let('level', median('old'),
  let('noise', 'if(size(old) >= ' ~ enough ~ ', greatest(' ~ least_noise ~ ', ' ~ noise('old', 'level')
    ~ '), state.noise)',
  let('estimated', 'if(size(old) >= ' ~ enough ~ ', size(old), state.estimated)',
  let('margin', 'greatest(' ~ least_change ~ ', (2.5D + 30D / nullif(estimated, 0)) * noise)',
  let('changed', 'coalesce(estimated > 0 and size(old) >= ' ~ again
    ~ ' and (array_max(fresh) < level - margin or array_min(fresh) > level + margin), false)',
  let('cut', 'if(changed, ' ~ began('k', 'level', median('fresh'), new, back) ~ ', 0)',
  let('next', "named_struct(
    'kept', slice(k, cut + 1, size(k)),
    'nights', if(changed, size(k) - cut, state.nights + 1),
    'noise', noise,
    'estimated', estimated,
    'before', if(changed, level, state.before),
    'before_nights', if(changed, cut, state.before_nights),
    'since', if(changed, k[cut], state.since),
    'found', if(changed, p.run_id, state.found))",
  let('now', median('transform(next.kept, one -> one.y)'),
  let('half', '1.96D * noise * sqrt(1.57D / nullif(next.before_nights, 0) + 1.57D / size(next.kept))',
  "named_struct(
    'kept', next.kept, 'nights', next.nights, 'noise', next.noise, 'estimated', next.estimated, 'before', next.before,
    'before_nights', next.before_nights, 'since', next.since, 'found', next.found,
    'judged', array_append(state.judged, named_struct(
      'run_id', p.run_id,
      'verdict', case
        when next.since is not null then if(now < next.before, 'slower', 'faster')
        when estimated = 0 then 'too_new'
        when 1 - exp(-margin - 1.81D * noise) > " ~ useless ~ " then 'too_noisy'
        else 'unchanged' end,
      'nights', next.nights,
      'level', exp(now),
      'noise', noise,
      'smallest', 1 - exp(-margin - 1.81D * noise),
      'since_run', next.since.run_id,
      'since_at', next.since.run_at,
      'since_build', next.since.build,
      'found_run', next.found,
      'change', exp(now - next.before) - 1,
      'change_low', exp(now - next.before - half) - 1,
      'change_high', exp(now - next.before + half) - 1)))"
  )))))))))))) }},
  state -> state.judged
)
{% endmacro %}

{# `body` in which `name` stands for `value`, which is computed once; `transform` would copy all that `body` gives. #}
{% macro let(name, value, body) -%}
aggregate(array(0), {{ value }}, (kept, _) -> kept, {{ name }} ->
{{ body }})
{%- endmacro %}

{# The median of an array of doubles; null of an empty one. #}
{% macro median(values) -%}
transform(array(sort_array({{ values }})), m -> if(size(m) = 0, null, (m[int((size(m) - 1) / 2)] + m[int(size(m) / 2)]) / 2))[0]
{%- endmacro %}

{# The noise of an array around its level: how far four of five nights lie from it at most, as a standard deviation. #}
{% macro noise(values, level) -%}
transform(array(sort_array(transform({{ values }}, v -> abs(v - {{ level }})))), d -> d[int(ceil(0.8D * size(d))) - 1])[0] / 1.2816D
{%- endmacro %}

{# How many of the nights `kept` came before a change from `level` to `target`: the cut from which they lie least far,
   all together; the earliest of equal ones. #}
{% macro began(kept, level, target, new, back) -%}
array_min(transform(sequence(greatest(1, size({{ kept }}) - {{ new + back }}), size({{ kept }}) - {{ new }}), j -> named_struct(
  'far', aggregate({{ kept }}, named_struct('i', 0, 'sum', 0D), (t, one) -> named_struct(
    'i', t.i + 1, 'sum', t.sum + abs(one.y - if(t.i < j, {{ level }}, {{ target }}))), t -> t.sum),
  'j', j))).j
{%- endmacro %}
