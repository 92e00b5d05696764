"""The campaign: hundreds of random programs, each in many random ways, without a mismatch or a hang.

Each test runs some programs in a process of its own (`campaign.py`), which may crash or hang. The counts are printed at
the end of the pytest run (`tests/conftest.py`).
"""

import dataclasses
import json
import os
import queue
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest

from streaming_core.apps import registry
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from tests.differential import campaign
from tests.differential.case import Events
from tests.support.draws import some

CHUNK = 10  # programs of a test
LIMIT = 300  # seconds without a word: a compilation takes a few, a run less than one


def watch(command: list[str], limit: float, home: Path) -> tuple[Counter, list[str]]:
    """The counts that a process of the campaign prints, and its failures; ends it after `limit` silent seconds."""
    lines: queue.Queue = queue.Queue()
    # Its standard input stays open until it ends.
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, **pipes, env=os.environ | {"LOCKSTEP_HOME": str(home)})

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    counts, failures, at, spilt = Counter(), [], {}, []
    try:
        while (line := lines.get(timeout=limit)) is not None:
            if not line.startswith('{"'):
                spilt.append(line)
                continue
            record = json.loads(line)
            at = record if "program" in record else at
            counts += Counter(record.get("counts", {}))
            if "differs" in record:
                failures.append(located(record["differs"], at))
    except queue.Empty:
        failures.append(located(f"hangs: nothing for {limit} seconds", at))
        process.kill()
    if (code := process.wait()) and not (failures and failures[-1].startswith("hangs")):
        failures.append(located(f"ends with code {code}:\n{''.join(spilt[-40:])}", at))
    process.stdin.close()
    process.stdout.close()
    return counts, failures


def located(failure: str, at: dict) -> str:
    """The failure with its program, its way and the command that runs it again."""
    return (
        f"{failure}\n  in: {at.get('way', 'no way')}\n"
        f"  again: PROPERTY_SEED={campaign.SEED} python -m tests.differential.campaign {at.get('program', '?')}"
    )


CHUNKS = [(kind, start) for kind, count in campaign.PROGRAMS.items() for start in range(0, count, CHUNK)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "start"), CHUNKS)
def test_programs_equal_the_oracle_in_every_way(kind, start, tmp_path, record_property):
    stop = min(start + CHUNK, campaign.PROGRAMS[kind])
    command = [sys.executable, "-m", "tests.differential.campaign", kind, f"{start}..{stop}"]
    counts, failures = watch(command, LIMIT, tmp_path)
    record_property("campaign", {"kind": kind, **counts})
    assert not failures, "\n\n".join(failures)
    assert counts["programs"] == stop - start
    if kind == "unordered":
        assert all(counts[channel] >= (stop - start) * campaign.PLANS for channel in campaign.CHANNELS)


def test_campaign_has_ten_thousand_pairs_of_each_kind_that_ends():
    programs = {kind: count for kind, count in campaign.PROGRAMS.items() if kind != "failing"}
    assert sum(campaign.PROGRAMS.values()) >= 500
    assert all(count * campaign.WAYS >= 10_000 for count in programs.values())


# Windows over states of almost every container, also where replicas share nothing and keys move.
@pytest.mark.parametrize(("kind", "number"), some([("unordered", 2), ("windowed", 59)]))
def test_program_equals_the_oracle(kind, number, tmp_path):
    command = [sys.executable, "-m", "tests.differential.campaign", kind, str(number)]
    counts, failures = watch(command, LIMIT, tmp_path)
    assert (counts["programs"], failures) == (1, [])


# --- the test of the test -------------------------------------------------------------------------------------------


def test_campaign_reports_a_process_that_hangs_or_crashes(tmp_path):
    says = 'import sys; print(\'{"program": "windowed 7 3", "way": "this way"}\', flush=True);'
    again = r"this way\n  again: PROPERTY_SEED=\d+ python -m tests.differential.campaign windowed 7 3"
    for rest, failure in (
        ("sys.stdin.read()", "hangs: nothing for 2 seconds"),
        ("1 // 0", r"ends with code 1:\n[\s\S]*ZeroDivisionError"),
        ("import os; os.abort()", "ends with code -6:"),
    ):
        _, [failure_text] = watch([sys.executable, "-c", f"{says} {rest}"], 2, tmp_path)
        assert re.search(rf"{failure}[\s\S]*{again}", failure_text), failure_text


def test_campaign_reports_a_different_result():
    with tempfile.TemporaryDirectory() as folder:
        r = random.Random(1)
        app, params, program, table = campaign.program_of("unordered", 2, Path(folder), r)
        expected = campaign.Expected.of(app, params, table)
        way = campaign.draw_ways(app, params, table.num_rows, "unordered", 2)[0]

        def run():
            return one_pass.run(way.spec, program, Blocks(Events([table]), program, way.block))

        assert campaign.difference(app, way, expected, run) is None
        failure = campaign.Failure("maps1", 3, "ValueError")
        rejected, dropped, late = expected.counts
        for wrong, message in (
            ({"digests": {order: ("0:0", digest) for order, (_, digest) in expected.digests.items()}}, "outputs and"),
            ({"counts": (rejected, dropped + 1, late)}, "rejected, dropped and late events"),
            ({"failure": failure}, "does not fail, the oracle does"),
        ):
            difference = campaign.difference(app, way, dataclasses.replace(expected, **wrong), run)
            assert difference is not None
            assert message in difference


def test_earliest_failure_is_expected_where_the_engine_promises_it():
    later, earlier = campaign.Failure("maps1", 5, "ValueError"), campaign.Failure("maps1", 4, "ValueError")
    app = registry.load("sl")
    expected = campaign.Expected(earlier, {}, (0, 0, 0))

    def differs(failure, **way):
        def run():
            raise campaign.RunFailed(f"operator {failure.operator} failed at event {failure.event}: ValueError: no")

        spec = campaign.RunSpec.parse({"app": app.name, "executor": "transactional", **way})
        return campaign.difference(app, campaign.Way(spec, 1000), expected, run)

    assert differs(earlier, threads=2) is None
    assert differs(later, threads=2) is None
    assert differs(later, threads=1) is not None
    assert differs(dataclasses.replace(earlier, event=3), threads=2) is not None
