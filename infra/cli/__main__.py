"""The `lockstep` command: the regression and its house. How it ends, ending.py says."""

from streaming_core import ending


def what_is_asked() -> int:
    """What the command needs is imported when it can be said that it cannot be."""
    from infra.cli import command

    return command.main()


if __name__ == "__main__":
    ending.end("lockstep", what_is_asked)
