"""`lockstep doctor`: print what the file system of LOCKSTEP_HOME can do, one line for each check."""

from __future__ import annotations

import json

from infra.checkout import home
from streaming_core.cli.options import Json


def doctor(as_json: Json = False) -> int:
    """Check that the file system of LOCKSTEP_HOME does what Lockstep needs.

    The command tries renames, locks, fsync, names and clocks in a temporary
    folder there. It also checks whether this checkout can read the raw
    results. Run it on each host that shares the folder. It exits with 1 if
    it finds a fault. `make doctor` checks the machine instead.

    Examples:
        lockstep doctor
        LOCKSTEP_HOME=/mnt/lockstep lockstep doctor
    """
    from infra.hosts.sharing import check

    findings = check(home())
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            line = f"{'fault' if finding.fix else 'ok':<8} {finding.name:<11} {finding.state}"
            print(f"{line}; to fix: {finding.fix}" if finding.fix else line)
    return int(any(finding.fix for finding in findings))
