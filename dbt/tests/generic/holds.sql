{# Every row makes every one of `rules` true; a rule that comes out null does not hold. #}
{% test holds(model, rules) %}
select *
from {{ tested(model) }}
where not coalesce(({{ rules | join(') and (') }}), false)
{% endtest %}
