"""Spark jobs of the pipeline: pure DataFrame functions and a thin `main(argv, spark=None)` each.

    prepare_workloads   plan.json -> workloads/<app>/<address>/
    run_oracle          workloads -> oracle/<app>/<address>/, oracles.json
    validate_outputs    outputs of all cells against their oracles -> warehouse/raw/verdicts, violations
    load_metrics        reports of all cells -> warehouse/raw/cells, samples
    import_events       files that a user names -> a workload (`lockstep import`, which is no task of a run)

Each task runs as `python -m jobs.<name> --run RUN_ID [--home DIR]`: against a Spark Connect server where SPARK_REMOTE
is set, inside `spark-submit`, or on a local session of its own. Functions that run on executors are imported there by
name, so the checkout must be importable on them: the embedded server is started with it on PYTHONPATH; on a cluster
install the wheel and ship this package (`spark-submit --py-files`, or `spark.addArtifacts(zip, pyfile=True)`).
LOCKSTEP_HOME must be the same path on the driver and on every executor.
"""
