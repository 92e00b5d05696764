"""The `lockstep` command. `command.py` lists its commands; each has a file."""
