"""The two ways a command can fail, and nothing else.

`BadInput` is the caller's mistake: one line that says what is wrong and what to do, exit code 2, nothing written.
`RunFailed` is a run that was well specified and did not succeed: exit code 1.
"""


class BadInput(ValueError):
    """The request cannot be carried out as it stands (exit code 2)."""


class RunFailed(RuntimeError):
    """A well-specified run did not succeed (exit code 1)."""
