"""The pages about runs and benchmarks, made from LOCKSTEP_HOME.

| to see | read |
|---|---|
| how the pages of a run are written | `publish`, then `pages` |
| how a run is loaded, and whether it is green | `history` |
| what a page shows | the module of `views` with the page's name |
| how a chart is drawn | `charts` |
| where a page is, and how pages link to it | `site` |
| the commands that reproduce a cell | `reproduce` |
"""
