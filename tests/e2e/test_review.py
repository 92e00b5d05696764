"""A pull request from push to comment: the steps of action.yml, as a runner executes them, against a remote here.

One application becomes slower, and the language rejects another one.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from infra.history.branch import HISTORY
from infra.review.comment import MARKER
from reports.history import History
from streaming_core.regression.home import Home
from tests.dbt.raw_runs import FASTER, GREEN, plan_of, write_runs
from tests.support.checkout import commit
from tests.support.forge import NUMBER, REPOSITORY, TOKEN, Forge

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
PATIENCE = 5400
MATRIX = """
executors: [pooled]
threads: [1]
events: 20000
repetitions: 1
seconds: 0
gate_minutes: 60
find_minutes: 1
"""
LINE = "    state.n += 1\n"
# The same result, after steps that no compiler can leave out.
SLOW = """    x = state.n + 27
    for step in range(600):
        x = x // 2 if x % 2 == 0 else 3 * x + 1
    state.n += 2 if x == 0 else 1
"""


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.fixture
def remote(copied, tmp_path) -> Path:
    """A remote with the copy's commits on main. The copy is on a branch with the changes of the pull request."""
    git(tmp_path, "init", "--quiet", "--bare", "remote")
    (copied / "dags" / "matrices" / "review.yaml").write_text(MATRIX)
    commit(copied)
    git(copied, "remote", "add", "origin", str(tmp_path / "remote"))
    git(copied, "push", "--quiet", "origin", "HEAD:refs/heads/main")
    edit(copied / "streaming_core/apps/wc.py", LINE, SLOW)
    sl = (copied / "streaming_core/apps/sl.py").read_text()
    (line,) = re.findall(r"^    [a-z_.]+ \+= .*\n", sl, re.MULTILINE)[:1]
    edit(copied / "streaming_core/apps/sl.py", line, f"    label = f'{{event.ts}}'\n{line}")
    commit(copied)
    return tmp_path / "remote"


@pytest.fixture
def home(copied, remote, user_environment) -> Home:
    """LOCKSTEP_HOME of the job. It holds the build of main, whose runtime is that of the copy."""
    home = Home(user_environment["LOCKSTEP_HOME"])
    base = home.build(git(copied, "rev-parse", "HEAD~1"))
    base.mkdir(parents=True)
    shutil.copytree(copied / "streaming_core", base / "streaming_core")
    edit(base / "streaming_core/apps/wc.py", SLOW, LINE)
    return home


def save_nights(copied: Path, environment: dict[str, str], folder: Path) -> None:
    """Save two nights, as the nightly of main does."""
    nights = Home(folder)
    write_runs(nights, (GREEN, FASTER))
    for run_id in (GREEN, FASTER):
        (nights.run(run_id)).mkdir(parents=True, exist_ok=True)
        (nights.run(run_id) / "plan.json").write_text(json.dumps(plan_of(run_id)))
    command = [".venv/bin/python", "-m", "infra.history.branch", "save"]
    subprocess.run(command, cwd=copied, env=environment | {"LOCKSTEP_HOME": str(folder)}, check=True)


class Runner:
    """Executes the steps of an action as a runner of GitHub does, but for those of other actions."""

    def __init__(self, folder: Path, environment: dict[str, str], values: dict[str, str], scratch: Path):
        self.folder, self.values, self.log = folder, values, {}
        files = {name: scratch / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        self.environment = environment | {name: str(file) for name, file in files.items()}
        self.output, self.summary = files.values()

    def run(self) -> int:
        """Execute the steps; returns the exit code of the first that fails, else 0."""
        for step in yaml.safe_load((self.folder / "action.yml").read_text())["runs"]["steps"]:
            if "uses" in step or ("if" in step and not self.value(step["if"])):
                continue
            variables = {name: self.filled(text) for name, text in step.get("env", {}).items()}
            assert "${{" not in step["run"]  # text of a pull request reaches bash in variables alone
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            done = subprocess.run(
                command, cwd=self.folder, env=self.environment | variables, timeout=PATIENCE, text=True, **pipes
            )
            self.log[step["name"]] = done.stdout
            for line in self.output.read_text().splitlines():
                name, _, value = line.partition("=")
                self.values[f"steps.{step.get('id')}.outputs.{name}"] = value
            self.output.write_text("")
            if done.returncode:
                return done.returncode
        return 0

    def value(self, expression: str) -> str:
        return self.values[expression.strip()]

    def filled(self, text: str) -> str:
        return re.sub(r"\$\{\{(.*?)\}\}", lambda match: self.value(match[1]), text)


def test_pull_request_is_reviewed_and_its_comment_replaced(copied, remote, home, user_environment, tmp_path):
    save_nights(copied, user_environment, tmp_path / "nights")
    values = {
        "inputs.base || github.base_ref": "main",
        "inputs.matrix": "review",
        "inputs.pages": "https://our.example.org/checks",
        "inputs.pages != ''": "true",
        "github.event.number": str(NUMBER),
        "github.token": TOKEN,
    }
    with Forge() as forge:
        forge.comments += [f"{MARKER}\nthe last review"]
        variables = {"GITHUB_API_URL": forge.address, "GITHUB_REPOSITORY": REPOSITORY}
        runner = Runner(copied, user_environment | variables, values, tmp_path)
        code = runner.run()
    text = "\n".join(f"## {name}\n{log}" for name, log in runner.log.items())
    assert code == 1, text
    assert list(runner.log)[-1] == "Judge", text
    assert "files of lockstep-history" in runner.log["Restore the history"]
    (comment,) = forge.comments
    assert comment == runner.summary.read_text() == (copied / "review" / "comment.md").read_text()
    run = History(home).latest()
    assert len(History(home).run_ids()) == 3  # both nights, and the run of the review
    assert f"https://our.example.org/checks/lockstep/pr-{NUMBER}/{run.run_id}/index.html" in comment
    (cell,) = run.cells
    assert (cell.verdict, cell.gate.verdict) == ("equal", "slower"), comment
    assert "% slower" in comment
    assert run.searched.rows
    suites = {suite.get("name"): suite for suite in ElementTree.parse(copied / "review" / "junit.xml").getroot()}
    assert [suites[name].find("testcase/*").tag for name in ("sl", "wc")] == ["error", "failure"]
    (result,) = json.loads((copied / "review" / "findings.sarif").read_text())["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    lines = (copied / place["artifactLocation"]["uri"]).read_text().splitlines()
    assert "label = f" in lines[place["region"]["startLine"] - 1]
    published = git(remote, "ls-tree", "-r", "--name-only", "gh-pages").splitlines()
    assert f"lockstep/pr-{NUMBER}/{run.run_id}/{cell.name}.html" in published
    assert run.run_id not in git(remote, "ls-tree", "-r", "--name-only", HISTORY)  # only main saves
