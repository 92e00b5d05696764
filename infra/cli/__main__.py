"""The `lockstep` command. `streaming_core/process/ending.py` describes its exit codes."""

from streaming_core.process import ending


def command_line() -> int:
    """Import the commands and run one. A failed import ends like any other failure, with one line."""
    from infra.cli import command

    return command.main()


if __name__ == "__main__":
    ending.end("lockstep", command_line)
