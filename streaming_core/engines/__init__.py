"""Other engines beside Lockstep's: what an engine declares (`contract`), where engines are (`registry`), and the
environment in which one runs (`environment`). `run/external.py` runs a cell on one."""
