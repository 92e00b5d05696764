"""The `streaming-core` command: the contract of hosts, jobs and users. `ending` documents its exit codes."""

from typing import NoReturn

from streaming_core import process
from streaming_core.process import ending


def main() -> NoReturn:
    """Run the command. It imports the engine inside `ending.end`, which reports a failed import in one line."""

    def run() -> int:
        process.remove_foreign_variables()
        from streaming_core.cli import command

        return command.main()

    ending.end("streaming-core", run)


__all__ = ["main"]
