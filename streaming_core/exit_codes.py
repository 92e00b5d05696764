"""The exit codes of `streaming-core` and `lockstep`.

Standard library only: `ending.py` needs it when nothing else can be loaded.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command. A signal n that stops a command makes SIGNAL + n."""

    SUCCESS = 0
    FAILED = 1
    BAD_INPUT = 2
    COMMAND_FAILED = 3
    SIGNAL = 128


MEANINGS: dict[ExitCode, str] = {
    ExitCode.SUCCESS: "The command did its work, and the result is good.",
    ExitCode.FAILED: "The command did its work, and the result is bad: a run failed, or a result is wrong.",
    ExitCode.BAD_INPUT: "The input is wrong: an option, a file or a path. The command wrote nothing.",
    ExitCode.COMMAND_FAILED: "The command could not do its work, for example on a full disk. This says nothing "
    "about a run. Set `LOCKSTEP_TRACEBACK=1` to see the traceback.",
    ExitCode.SIGNAL: "A signal stopped the command: 128 plus its number, so 130 after Ctrl-C. A second Ctrl-C ends the "
    "command at once.",
}

# Command -> what a code means there, where it says more than `MEANINGS`.
OF_COMMANDS: dict[str, dict[ExitCode, str]] = {
    "streaming-core run": {ExitCode.FAILED: "The run failed, for example because an operator divided by zero."},
    "streaming-core replay": {ExitCode.FAILED: "The replay differs from the oracle's."},
    "streaming-core diff": {
        ExitCode.SUCCESS: "The run and the oracle are equal.",
        ExitCode.FAILED: "They are different.",
        ExitCode.BAD_INPUT: "They are not comparable, for example because they read different workloads.",
    },
    "streaming-core bench": {ExitCode.FAILED: "A result is wrong, or the prediction for a plan is far off."},
    "lockstep run": {
        ExitCode.SUCCESS: "The run is green.",
        ExitCode.FAILED: "The run is red, it failed, or you stopped it.",
    },
    "lockstep check": {
        ExitCode.SUCCESS: "Every cell is equal to the oracle.",
        ExitCode.FAILED: "A cell differs, breaks an invariant or failed.",
    },
    "lockstep conformance": {
        ExitCode.SUCCESS: "Every answer of the engine equals the oracle's.",
        ExitCode.FAILED: "An answer differs, or the engine failed.",
        ExitCode.BAD_INPUT: "There is no such engine, application or workload, or the engine is not installed.",
    },
    "lockstep engines install": {ExitCode.FAILED: "A step of the installation failed. Nothing is left of it."},
    "lockstep follow": {
        ExitCode.FAILED: "An operator failed, or with `--verify` the result differs from the oracle's."
    },
    "lockstep report": {ExitCode.SUCCESS: "The run is green.", ExitCode.FAILED: "The run is red."},
    "lockstep invariants": {ExitCode.FAILED: "The run breaks an invariant."},
    "lockstep gate": {ExitCode.FAILED: "A cell is slower than at the other commit, or the two cannot be compared."},
    "lockstep doctor": {ExitCode.FAILED: "The file system or the raw results of `LOCKSTEP_HOME` have a fault."},
    "lockstep hosts": {ExitCode.BAD_INPUT: "A host cannot run cells, or Airflow has no such connection."},
    "lockstep prune": {ExitCode.FAILED: "A folder could not be removed."},
    "lockstep ui": {ExitCode.FAILED: "A component of Airflow ended by itself, or did not start."},
    "lockstep stop": {ExitCode.FAILED: "Airflow did not stop in time."},
    "lockstep warehouse build": {ExitCode.FAILED: "A mart breaks a constraint."},
    "lockstep warehouse rebuild": {ExitCode.FAILED: "A mart breaks a constraint."},
    "lockstep warehouse freshness": {ExitCode.FAILED: "The newest results are too old."},
}
