"""An application that prints its environment, run as a cell is run: it prints nothing secret."""

from __future__ import annotations

import json
import subprocess

import pytest

from streaming_core.process import APPLICATION_PREFIXES, APPLICATION_VARIABLES

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SECRET = "a secret of this test"
SECRETS = ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW_CONN_LOCAL", "MY_TOKEN", "SPARK_CONNECT_AUTHENTICATE_TOKEN")
PRINTS = "\nimport json, os\nprint('environment', json.dumps(dict(os.environ)))\n"


def test_environment_of_an_application_has_no_secret(copied, user_environment, tmp_path):
    engine, workload = copied / ".venv" / "bin" / "streaming-core", tmp_path / "workload"

    def run(*command: object, **variables: str) -> None:
        world = {**user_environment, **variables}
        done = subprocess.run(
            list(map(str, command)), cwd=copied, env=world, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run(engine, "new", "peek")
    application = copied / "streaming_core" / "apps" / "peek.py"
    application.write_text(application.read_text() + PRINTS)
    run(engine, "generate", "peek", "--events", "100", "--out", workload)
    attempt = tmp_path / "attempt-1"
    attempt.mkdir()
    (attempt / "spec.json").write_text(
        json.dumps({"app": "peek", "executor": "pooled", "threads": 1, "repetitions": 1})
    )
    driver = [copied / ".venv" / "bin" / "python", copied / "infra" / "hosts" / "cell.py", "run", attempt]
    secrets = dict.fromkeys(SECRETS, SECRET)
    run(*driver, "--input", workload, LOCKSTEP_APP_MODE="fast", **secrets)
    lines = (tmp_path / "attempt-1.stdout.log").read_text().splitlines()
    seen = json.loads(next(line for line in lines if line.startswith("environment")).removeprefix("environment "))
    assert seen["LOCKSTEP_APP_MODE"] == "fast"
    known = (*APPLICATION_VARIABLES, "LOCKSTEP_TRACEBACK", "LC_CTYPE")
    assert [name for name in seen if name not in known and not name.startswith(APPLICATION_PREFIXES)] == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
