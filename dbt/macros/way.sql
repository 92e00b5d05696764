{# The columns that say how a cell is executed, but for its threads; a test compares them with what is declared. #}
{% macro way() %}
  {{ return([
    'executor', 'scheme', 'pool', 'stealing', 'checkpoint', 'heuristic', 'queue', 'reorder', 'partitioning',
    'partitions', 'slice', 'throughput_window', 'channel', 'plan', 'schedule', 'controller', 'thresholds', 'parallelism',
    'punctuation', 'batch', '`order`', 'rate', 'pin', 'idle',
  ]) }}
{% endmacro %}
