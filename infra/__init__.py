"""Everything around the engine: hosts, history, the speed gate, the `lockstep` command, Airflow, lint and setup."""
