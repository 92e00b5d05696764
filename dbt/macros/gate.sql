{#
  The rule of the speed gate (docs/explanation/speed-verdicts.md). tests/dbt/test_gate.py compares it with the same rule in
  Python.

  `faster`: an array of doubles, of each pair the logarithm of the ratio of the build's speed to the baseline's. The result:
  a struct; null unless there are as many pairs as its numbers are for.

  It is Wilcoxon's signed-rank test, by the interval that goes with it (Hodges and Lehmann's): of the 528 means of two
  pairs, each with itself too, the middle one estimates the change, and those that `likely` others lie beyond enclose it
  with probability 0.95. Where the builds are the same, `certain` of them and less lie on one side of nothing with
  probability 9.0e-6.
#}
{% macro gate(faster) %}
{%- set pairs, likely, certain = 32, 159, 52 -%}
{%- set last = pairs * (pairs + 1) // 2 - 1 -%}
{#- The least change that is believed, in logarithms; what the half of the test's interval is multiplied by to be the
    slowdown that it finds nine times of ten; from which one on there is no verdict. -#}
{%- set least_change, found, useless = '0.01D', '1.7D', '0.25D' -%}
if(size({{ faster }}) = {{ pairs }}, {{ let('means', 'sort_array(flatten(transform(' ~ faster ~ ', (one, i) -> transform(slice('
  ~ faster ~ ', i + 1, size(' ~ faster ~ ')), other -> (one + other) / 2))))',
  let('middle', median('means'),
  let('smallest', '1 - exp(-' ~ least_change ~ ' - ' ~ found ~ ' * (means[' ~ (last - certain) ~ '] - middle))',
  "named_struct(
    'verdict', case
      when means[" ~ (last - certain) ~ "] < -" ~ least_change ~ " then 'slower'
      when means[" ~ certain ~ "] > " ~ least_change ~ " then 'faster'
      when smallest > " ~ useless ~ " then 'too_noisy'
      else 'unchanged' end,
    'change', exp(middle) - 1,
    'change_low', exp(means[" ~ likely ~ "]) - 1,
    'change_high', exp(means[" ~ (last - likely) ~ "]) - 1,
    'smallest', smallest)"
))) }}, null)
{% endmacro %}
