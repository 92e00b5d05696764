"""The `streaming-core` command: the contract that hosts, jobs and people share.

Exit codes: 0 done, 1 the run failed, 2 bad input (or, for `diff`, not comparable), 128 + n stopped by signal n. What is
wrong is one line on stderr.
"""

from streaming_core.cli.command import main

__all__ = ["main"]
