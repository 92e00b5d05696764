{# The grain: no two rows agree in `columns`, and none of them is null. #}
{% test one_row_per(model, columns) %}
select `{{ columns | join('`, `') }}`, count(*) as rows_found
from {{ tested(model) }}
group by `{{ columns | join('`, `') }}`
having count(*) > 1 or `{{ columns | join('` is null or `') }}` is null
{% endtest %}
