"""The parts of DAGs: operators, triggers, hosts, forms and alerts. `operators.py` is the place to start."""
