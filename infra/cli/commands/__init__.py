"""The declarations of the `lockstep` commands: one file for each family, with options and help."""
