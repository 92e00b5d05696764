"""Import your own files as events of an application, so that a regression can run on them.

The DAG reads files on the machine of Airflow, in the folders of the setting `LOCKSTEP_IMPORT_ROOTS`; the form shows
them. Copy your files there first. Parquet, CSV and JSON lines work; CSV and JSON may be `.gz` or `.bz2`.

Each row becomes an event, or is set aside with a reason. The folder of the import holds the rows that were set aside.

| field | meaning | default |
|---|---|---|
| Application | the application that will process the events | none; you must choose one |
| Name | name of the import | none; you must fill it in |
| Files | a file or folder per line; for applications with several sources, `NAME=PATH` for each stream | none |
| Map | `FIELD=COLUMN` per line, for fields whose column has another name | the name of the field |
| Separator | character between the columns of CSV | comma; in `.tsv` files a tab |
| Tolerance | share of the rows that may be set aside without a warning | 0 |
| Params | parameters of the application | those of the application |

## When it has ended

The log of `import_files` lists the reasons for rows that were set aside. Its XCom has the numbers of events and rows.
In the form of `streaming_regression`, choose the import under **Workload**, **Data**.

## If this DAG is red

- The task `check` failed: the form does not fit the files. Its last log line says what to change.
- The task `import_files` failed: a file is damaged, or no row is an event. Its last log line names the file. Nothing
  was kept, so you can trigger the DAG with the same name again.

`lockstep import` does the same on the command line.
"""

from datetime import timedelta

from airflow.sdk import get_current_context, task

from dags.lib import import_form
from dags.lib.form import form_dag

with form_dag(
    "import_data",
    "6 Import data: turn your files into events",
    "Import your own files as events of an application, so that a regression can run on them.",
    __doc__,
    import_form.import_params(),
) as dag:

    @task(
        execution_timeout=timedelta(minutes=5),
        doc_md="Checks the form, the paths and the columns of the files.",
    )
    def check() -> dict:
        """Check the form."""
        return import_form.check(dict(get_current_context()["params"]))

    @task(
        execution_timeout=timedelta(hours=2),
        doc_md="Reads the files, sorts the events by time, and keeps the import under its name.",
    )
    def import_files() -> dict:
        """Read the files, and keep the import under its name."""
        return import_form.import_files(dict(get_current_context()["params"]))

    check() >> import_files()
