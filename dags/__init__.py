"""The DAGs of Lockstep. `streaming_regression.py` runs a regression; each other file is one small DAG."""
