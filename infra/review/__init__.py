"""The review of a change: a run of the applications that it concerns, and the files that a pull request shows."""
