"""The `lockstep` command. `command.py` has its families; each other file does the work of one command."""
