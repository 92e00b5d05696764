"""`lockstep doctor`: print what the file system of LOCKSTEP_HOME can do, one line for each check."""

from __future__ import annotations

import json

from infra.services.sharing import check
from streaming_core.regression.home import Home


def doctor(home: Home, as_json: bool) -> int:
    """Check `home` and print the findings; raises the errors of `check`.

    Returns:
        The exit code: 1 if a check found a fault.
    """
    findings = check(home)
    if as_json:
        print(json.dumps([one._asdict() for one in findings], indent=1))
    else:
        for one in findings:
            line = f"{'fault' if one.fix else 'ok':<8} {one.name:<11} {one.state}"
            print(f"{line}; to fix: {one.fix}" if one.fix else line)
    return int(any(one.fix for one in findings))
