"""The Lockstep engine: applications, the sequential oracle and the native runtime.

Nothing in this package knows Airflow, Spark or Great Expectations.
"""

__version__ = "0.1.0"
