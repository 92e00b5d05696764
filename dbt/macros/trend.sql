{#
  The rule of the trend for one series, night by night (docs/explanation/speed-verdicts.md), as one expression of Spark SQL.
  tests/dbt/test_trend.py compares it with the same rule in Python.

  `points`: an array, in order, of struct<run_id string, run_at timestamp, build string, y double, epoch string, gate
  struct<run_id string, baseline string, verdict string, change double, change_low double, change_high double, smallest
  double>>; y is the logarithm of the ratio to the compiled loop. Ratios of one epoch are comparable; another epoch begins
  when the source, the workload or the loop changes. `gate`: what the speed gate says of the epoch; null if nothing. The
  result: an array with, per point, what the mart `speed` has of it.

  A new epoch begins without a level. The gate bridges it if it compared a build of this epoch with a build of the epoch
  before, which is `past` until then: the noise and the last change go on. Without a bridge there is no verdict until the
  epoch has a noise of its own.
#}
{% macro trend(points) %}
{#- Nights: that a decision looks at; that a baseline has at most; from which noise is estimated; after which a new level
    is judged again; before a decision in which a change may have begun. -#}
{%- set new, most, enough, again, back = 3, 60, 12, 5, 7 -%}
{#- The least noise and the least change that are believed, in logarithms; from which noise on there is no verdict. -#}
{%- set least_noise, least_change, useless = '0.002D', '0.02D', '0.25D' -%}
{%- set point = 'struct<run_id:string, run_at:timestamp, build:string, y:double>' -%}
{%- set size_of = 'struct<change:double, change_low:double, change_high:double>' -%}
{%- set past = 'struct<builds:array<string>, last:string, noise:double, estimated:int, since:' ~ point
  ~ ', found:string, told:' ~ size_of ~ '>' -%}
{%- set night = 'struct<run_id:string, verdict:string, nights:int, level:double, noise:double, smallest:double, '
  ~ 'since_run:string, since_at:timestamp, since_build:string, found_run:string, change:double, change_low:double, '
  ~ 'change_high:double, edited_build:string, reference_build:string, bridge_run:string>' -%}
aggregate(
  {{ points }},
  named_struct(
    -- The nights of this epoch since the last change, the latest of them; the noise, and from how many nights it was
    -- estimated.
    'kept', cast(array() as array<{{ point }}>), 'nights', 0, 'noise', cast(null as double), 'estimated', 0,
    -- The level before the last change, from how many nights; where it began, and the run in which it was found. `told`:
    -- its size, if the gate measured it or it lies in an earlier epoch.
    'before', cast(null as double), 'before_nights', 0, 'since', cast(null as {{ point }}), 'found', cast(null as string),
    'told', cast(null as {{ size_of }}),
    -- The epoch and its first night, unless it is the first epoch; the gate's run that bridged it, and the smallest
    -- slowdown that this run would have found; the epoch before, until then.
    'epoch', cast(null as string), 'first', cast(null as {{ point }}), 'bridge', cast(null as string),
    'bridge_smallest', cast(null as double), 'past', cast(null as {{ past }}),
    'judged', cast(array() as array<{{ night }}>)
  ),
  (state, p) -> {{ let('q', "named_struct('run_id', p.run_id, 'run_at', p.run_at, 'build', p.build, 'y', p.y)",
  let('edited', 'coalesce(state.epoch <> p.epoch, false)',
  let('past', "case
    when not edited or state.past is not null then state.past
    else named_struct(
      'builds', transform(state.kept, one -> one.build), 'last', coalesce(element_at(state.kept, -1).build, 'unknown'),
      'noise', state.noise, 'estimated', state.estimated, 'since', state.since, 'found', state.found,
      'told', if(state.since is null, null, named_struct(
        'change', element_at(state.judged, -1).change, 'change_low', element_at(state.judged, -1).change_low,
        'change_high', element_at(state.judged, -1).change_high))) end",
  let('bridged', "coalesce(
    p.gate.verdict in ('slower', 'faster', 'unchanged')
    and exists(past.builds, one -> startswith(p.gate.baseline, one)), false)",
  let('accused', "bridged and p.gate.verdict <> 'unchanged'",
  let('s', "named_struct(
    'kept', if(edited, cast(array() as array<" ~ point ~ ">), state.kept),
    'nights', if(edited, 0, state.nights),
    'noise', if(bridged, past.noise, if(edited, null, state.noise)),
    'estimated', if(bridged, past.estimated, if(edited, 0, state.estimated)),
    'before', if(edited, null, state.before),
    'before_nights', if(edited, 0, state.before_nights),
    'first', if(edited, q, state.first),
    'since', case when accused then coalesce(if(edited, null, state.first), q) when bridged then past.since
      when edited then null else state.since end,
    'found', case when accused then p.gate.run_id when bridged then past.found when edited then null
      else state.found end,
    'told', case
      when accused then named_struct('change', p.gate.change, 'change_low', p.gate.change_low,
        'change_high', p.gate.change_high)
      when bridged then past.told when edited then null else state.told end,
    'bridge', if(bridged, p.gate.run_id, if(edited, null, state.bridge)),
    'bridge_smallest', if(bridged, p.gate.smallest, if(edited, null, state.bridge_smallest)))",
  let('k', 'array_append(slice(s.kept, greatest(1, size(s.kept) - ' ~ (most + new - 2)
    ~ '), ' ~ (most + new) ~ '), q)',
  let('old', 'transform(slice(k, 1, greatest(0, size(k) - ' ~ new ~ ')), one -> one.y)',
  let('fresh', 'transform(slice(k, greatest(1, size(k) - ' ~ (new - 1) ~ '), ' ~ new ~ '), one -> one.y)',
  let('level', median('old'),
  let('noise', 'if(size(old) >= ' ~ enough ~ ', greatest(' ~ least_noise ~ ', ' ~ noise('old', 'level')
    ~ '), s.noise)',
  let('estimated', 'if(size(old) >= ' ~ enough ~ ', size(old), s.estimated)',
  let('margin', 'greatest(' ~ least_change ~ ', (2.5D + 30D / nullif(estimated, 0)) * noise)',
  let('changed', 'coalesce(estimated > 0 and size(old) >= ' ~ again
    ~ ' and (array_max(fresh) < level - margin or array_min(fresh) > level + margin), false)',
  let('cut', 'if(changed, ' ~ began('k', 'level', median('fresh'), new, back) ~ ', 0)',
  let('next', "named_struct(
    'kept', slice(k, cut + 1, size(k)),
    'nights', if(changed, size(k) - cut, s.nights + 1),
    'noise', noise,
    'estimated', estimated,
    'before', if(changed, level, s.before),
    'before_nights', if(changed, cut, s.before_nights),
    'since', if(changed, k[cut], s.since),
    'found', if(changed, p.run_id, s.found),
    'told', if(changed, null, s.told),
    'past', if(bridged or size(old) >= " ~ enough ~ ", null, past))",
  let('now', median('transform(next.kept, one -> one.y)'),
  let('half', '1.96D * noise * sqrt(1.57D / nullif(next.before_nights, 0) + 1.57D / size(next.kept))',
  let('by_gate', 'coalesce(s.bridge is not null and (estimated = 0 or size(old) < ' ~ again ~ '), false)',
  let('smallest', 'if(by_gate, s.bridge_smallest, 1 - exp(-margin - 1.81D * noise))',
  "named_struct(
    'kept', next.kept, 'nights', next.nights, 'noise', next.noise, 'estimated', next.estimated, 'before', next.before,
    'before_nights', next.before_nights, 'since', next.since, 'found', next.found, 'told', next.told,
    'epoch', p.epoch, 'first', s.first, 'bridge', s.bridge, 'bridge_smallest', s.bridge_smallest, 'past', next.past,
    'judged', array_append(state.judged, named_struct(
      'run_id', p.run_id,
      'verdict', case
        when next.since is not null then if(coalesce(next.told.change, now - next.before) < 0, 'slower', 'faster')
        when next.past is not null then 'not_judged'
        when by_gate then 'unchanged'
        when estimated = 0 then 'too_new'
        when smallest > " ~ useless ~ " then 'too_noisy'
        else 'unchanged' end,
      'nights', next.nights,
      'level', exp(now),
      'noise', noise,
      'smallest', smallest,
      'since_run', next.since.run_id,
      'since_at', next.since.run_at,
      'since_build', next.since.build,
      'found_run', next.found,
      'change', coalesce(next.told.change, exp(now - next.before) - 1),
      'change_low', coalesce(next.told.change_low, exp(now - next.before - half) - 1),
      'change_high', coalesce(next.told.change_high, exp(now - next.before + half) - 1),
      'edited_build', s.first.build,
      'reference_build', next.past.last,
      'bridge_run', if(by_gate, s.bridge, null))))"
  )))))))))))))))))))) }},
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
