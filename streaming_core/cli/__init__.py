"""The `streaming-core` command: the contract that hosts, jobs and people share.

Exit codes: 0 done, 1 the run failed (or, for `diff`, differs), 2 bad input (or, for `diff`, not comparable), 3 the
command itself failed, 128 + n stopped by signal n. What is wrong is one line on stderr.
"""

from typing import NoReturn

from streaming_core import ending


def main() -> NoReturn:
    """Entry point. What the command needs is imported when it can be said that it cannot be."""

    def what_is_asked() -> int:
        from streaming_core.cli import command

        return command.main()

    ending.end("streaming-core", what_is_asked)


__all__ = ["main"]
