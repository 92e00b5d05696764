"""The speed gate: compares a build with an earlier one, in pairs of processes."""
