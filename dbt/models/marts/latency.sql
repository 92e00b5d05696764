select
  run_id,
  run_at,
  cell,
  app,
  params,
  executor,
  strategy,
  `order`,
  threads,
  events,
  rate,
  host,
  build,
  kind,
  samples,
  p50_us,
  p95_us,
  p99_us,
  p999_us,
  max_us,
  month
from {{ ref('cells') }}
lateral view stack(
  2,
  'processing', peak_samples,
  processing_p50_us, processing_p95_us, processing_p99_us, processing_p999_us, processing_max_us,
  'end_to_end', open_loop_samples,
  end_to_end_p50_us, end_to_end_p95_us, end_to_end_p99_us, end_to_end_p999_us, end_to_end_max_us
) as kind, samples, p50_us, p95_us, p99_us, p999_us, max_us
where verdict = 'equal' and samples > 0 and {{ concerned() }}
