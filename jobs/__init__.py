"""Jobs of the regression. Each has DataFrame functions, and `work(spark, home, run_id)`, which returns a line.

    prepare_workloads   plan.json -> workloads/<app>/<address>/
    run_oracle          workloads -> oracle/<app>/<address>/, oracles.json
    validate_outputs    outputs of all cells and their oracles -> warehouse/raw/verdicts, violations
    load_metrics        reports of all cells -> warehouse/raw/cells, samples; needs no Spark

Airflow's operator passes the session (`dags/lib/spark.py`). Executors import functions by name, so their Python needs
the checkout on its path, and what runtime.lock lists. The server of a run gives its executors both, if the
checkout has one path everywhere. LOCKSTEP_HOME must be the same path on the driver and on every executor.
"""
