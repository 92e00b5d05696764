{# Every row finds its parent: `to` has a row with the same `columns`, and, when given, one for which `among` is true. #}
{% test belongs_to(model, to, columns, among='true') %}
select {% for column in columns %}child.`{{ column }}`{{ ', ' if not loop.last }}{% endfor %}
from {{ tested(model) }} as child
left anti join (select * from {{ tested(to) }} where {{ among }}) as parent
  on {% for column in columns %}child.`{{ column }}` = parent.`{{ column }}`{{ ' and ' if not loop.last }}{% endfor %}
{% endtest %}
