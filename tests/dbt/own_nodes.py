"""Nodes of every kind of dbt, as a user adds them to the project: files below dbt/, by path."""

import shutil
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2] / "dbt"

GREEN = {
    "seeds/own_hosts.csv": "host,rack\nnode1,a\nnode2,b\n",
    "macros/own.sql": "{% macro own_name(column) %}upper({{ column }}){% endmacro %}",
    "analyses/own.sql": "select * from {{ ref('own_racks') }}",
    "models/own_ephemeral.sql": "{{ config(materialized='ephemeral') }} select * from {{ ref('own_hosts') }}",
    "models/own_racks.sql": "select {{ own_name('rack') }} as rack, host from {{ ref('own_ephemeral') }}",
    "models/some/where/own_table.sql": "{{ config(materialized='table', post_hook='select 1') }} "
    "select rack, count(*) as hosts from {{ ref('own_racks') }} group by rack",
    "models/own_new.sql": "{{ config(materialized='incremental') }} select * from {{ ref('own_racks') }}",
    "models/own_cells_v2.sql": "select run_id, cell from {{ ref('cells') }}",
    "models/own.yml": """
sources:
  - name: elsewhere
    tables: [{name: nothing_reads_it}]
models:
  - name: own_racks
    columns:
      - name: rack
        data_tests:
          - unique
          - accepted_values: {name: own_rack_is_known, arguments: {values: [A]}, config: {severity: warn}}
  - name: own_cells
    versions: [{v: 2}]
    data_tests:
      - one_row_per: {name: own_cell_has_one_row, arguments: {columns: [run_id, cell]}}
seeds:
  - name: own_hosts
    columns: [{name: host, data_tests: [not_null]}]
exposures:
  - {name: own_dashboard, type: dashboard, owner: {name: me}, depends_on: [ref('own_table')]}
unit_tests:
  - name: own_hosts_are_counted_by_rack
    model: own_table
    given: [{input: ref('own_racks'), rows: [{host: n, rack: A}, {host: m, rack: A}]}]
    expect: {rows: [{rack: A, hosts: 2}]}
""",
    "tests/own_singular.sql": "select 1 as broken where false",
    "tests/own_warning.sql": "{{ config(severity='warn') }} "
    "select run_id from {{ ref('runs') }} join {{ ref('own_racks') }} on true where rack = 'A'",
    "dbt_project.yml": (PROJECT / "dbt_project.yml").read_text() + '\non-run-end: "select 1"\n',
}
RED = GREEN | {
    "tests/own_error.sql": "select 1 as broken",
    "models/own_broken.sql": "select nosuch from {{ ref('own_racks') }}",
    "models/own_after_broken.sql": "select * from {{ ref('own_broken') }}",
    "models/own_python.py": "def model(dbt, session):\n    return dbt.ref('own_racks')\n",
    "snapshots/own_snapshot.sql": "{% snapshot own_snapshot %}"
    "{{ config(unique_key='host', strategy='check', check_cols='all') }} select * from {{ ref('own_hosts') }}"
    "{% endsnapshot %}",
    "dbt_project.yml": (PROJECT / "dbt_project.yml").read_text() + '\non-run-end: "select nosuch"\n',
}


def copy_project(folder: Path, nodes: dict[str, str]) -> Path:
    """Copy dbt's project, and add the nodes."""
    shutil.copytree(PROJECT, folder)
    for name, text in nodes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
