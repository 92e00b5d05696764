"""Spark jobs of the regression. Each has DataFrame functions, and a small `main(argv, spark=None)`.

    prepare_workloads   plan.json -> workloads/<app>/<address>/
    run_oracle          workloads -> oracle/<app>/<address>/, oracles.json
    validate_outputs    outputs of all cells and their oracles -> warehouse/raw/verdicts, violations
    load_metrics        reports of all cells -> warehouse/raw/cells, samples
    import_events       files of a user -> a workload (`lockstep import`, DAG `import_data`; no task of a run)

Each task runs as `python -m jobs.<name> --run RUN_ID [--home DIR]`: on a Spark Connect server if SPARK_REMOTE is set,
inside `spark-submit`, or else on a local session. Executors import functions by name, so they need the checkout. The
embedded server has it on PYTHONPATH. On a cluster, install the wheel and ship this package (`spark-submit --py-files`,
or `spark.addArtifacts(zip, pyfile=True)`). LOCKSTEP_HOME must be the same path on the driver and on every executor.
"""
