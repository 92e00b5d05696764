"""Everything around the engine: services, the `lockstep` command, Airflow, other engines, lint and setup."""
