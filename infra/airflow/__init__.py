"""Airflow for this checkout: its settings, its database and connections, its plugin, and how to run a DAG."""
