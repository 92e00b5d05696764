select
  cells.*,
  verdicts.checks,
  coalesce(figures.peak_samples, 0) as peak_samples,
  coalesce(figures.open_loop_samples, 0) as open_loop_samples,
  figures.* except (run_id, cell, peak_samples, open_loop_samples),
  date_format(cells.run_at, 'yyyy-MM') as month
from {{ ref('stg_cells') }} as cells
inner join {{ ref('int_cell_verdicts') }} as verdicts using (run_id, cell)
left join {{ ref('int_cell_figures') }} as figures using (run_id, cell)
where {{ concerned('cells.run_id') }}
