"""A project: `copier copy` makes it with its own names, and `copier update` brings a newer Lockstep into it."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from markupsafe import escape

from streaming_core.regression.home import Home
from tests.support import checkout

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
ISSUES = "https://forge.example.org/fraud/issues?state=open"
NAME, TITLE, PREFIX = "fraud-checks", 'Fraud "checks": C:\\new \U0001f468\u200d\U0001f4bb <b> & #1', "fraud_checks_"
OWN = {".copier-answers.yml.jinja", "copier.yml", ".github/workflows/release.yml", "docs/benchmarks.md.jinja"}
OWN |= {"mkdocs.yml.jinja", "pyproject.toml.jinja"}
# The folders that a project leaves out, or has a part of.
PARTS = ("docs/benchmarks/", "infra/benchmarks/", "infra/lint/prose/", "infra/release/")
PARTS += ("streaming_core/bench/", "tests/")
MOST_LINES = {".py": 84_000, ".json": 10_000}
# The ids in Airflow, as a project's own AIRFLOW_HOME has them.
LIST = """
import json, pathlib, sys
from infra.airflow import airflow_home
airflow_home.prepare(pathlib.Path(sys.argv[1]))
from airflow.dag_processing.dagbag import DagBag
from airflow.models import Connection, Pool
from airflow.utils.session import create_session
bag = DagBag(dag_folder="dags")
with create_session() as session:
    connections = [name for (name,) in session.query(Connection.conn_id)]
    pools = [name for (name,) in session.query(Pool.pool)]
print("ids", json.dumps({
    "dags": sorted(bag.dags),
    "errors": list(bag.import_errors.values()),
    "labels": [dag.dag_display_name for dag in bag.dags.values()],
    "tags": sorted({tag for dag in bag.dags.values() for tag in dag.tags}),
    "triggers": bag.dags[sorted(bag.dags)[-1]].tasks[0].trigger_dag_id,
    "assets": sorted({asset.name for dag in bag.dags.values() for task in dag.tasks for asset in task.outlets}),
    "task pools": sorted({task.pool for dag in bag.dags.values() for task in dag.tasks}),
    "connections": sorted(connections),
    "pools": sorted(pools),
}))
"""

PAGE = """
from reports.pages import History, Pages
from streaming_core.regression.home import Home
print(Pages(History(Home())).index())
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A repository of this checkout. Git packs it, because copier renders the path of each file in .git."""
    folder = checkout.track(tmp_path_factory.mktemp("template"))
    subprocess.run(["git", "gc", "--quiet"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def project(template, tmp_path_factory) -> Path:
    """A project of the template, in a repository of its own."""
    return checkout.equip(copy(template, tmp_path_factory.mktemp("project") / NAME))


@pytest.fixture(scope="module")
def shell(project, tmp_path_factory, with_compiled):
    """Runs a command in the project; returns what it prints on standard output."""
    folder = tmp_path_factory.mktemp("user")
    with_compiled(folder / "lockstep")
    environment = checkout.environment(project) | checkout.homes(folder)

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=1500)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        return done.stdout

    run.home = Home(folder / "lockstep")
    run.log = folder / "prepare.log"
    return run


def copy(template: Path, folder: Path) -> Path:
    data = ["--data", f"name={NAME}", "--data", f"title={TITLE}", "--data", f"issues={ISSUES}"]
    copier(folder.parent, "copy", "--defaults", *data, str(template), str(folder))
    return checkout.commit(folder)


def update(project: Path, template: Path) -> None:
    """Changes a project, changes other places of its template, and updates the project."""
    edit(project / "dags/matrices/smoke.yaml", r"\A", "# The first line is the project's.\n")
    edit(project / "README.md", r"\A.*\n", "# The fraud team's checks\n")
    (project / "streaming_core/apps/cards.py").write_text((project / "streaming_core/apps/wc.py").read_text())
    edit(project / "streaming_core/apps/cards.py", '"wc"', '"cards"')
    (project / "docs/how-to/choose-a-plan.md").unlink()
    checkout.commit(project)
    with open(template / "dags/matrices/smoke.yaml", "a") as file:
        file.write("# The last line is the template's.\n")
    edit(template / "pyproject.toml", r"(?m)^version = .*$", 'version = "0.2.0"')
    (template / "docs/new.md").write_text("# A page of a newer Lockstep\n")
    (template / "docs/overview.png").unlink()
    checkout.commit(template)
    copier(project, "update", "--defaults")


def copier(folder: Path, *arguments: str) -> None:
    command = [str(checkout.ROOT / ".venv" / "bin" / "copier"), *arguments]
    done = subprocess.run(command, cwd=folder, env=checkout.environment(checkout.ROOT), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def edit(path: Path, pattern: str, replacement: str) -> None:
    text, times = re.subn(pattern, replacement, path.read_text(), count=1)
    assert times == 1, path
    path.write_text(text)


def tracked(folder: Path) -> set[str]:
    return set(subprocess.check_output(["git", "ls-files"], cwd=folder, text=True).split())


def test_project_has_every_file_except_those_for_the_development_of_lockstep(template, project):
    missing = tracked(template) - tracked(project)
    assert missing >= OWN
    assert not [name for name in missing - OWN if not name.startswith(PARTS)]
    assert tracked(project) - tracked(template) == {".copier-answers.yml"}
    for suffix, most in MOST_LINES.items():
        texts = [(project / name).read_text() for name in tracked(project) if name.endswith(suffix)]
        assert 0 < sum(text.count("\n") for text in texts) <= most
    changed = {name for name in tracked(project) & tracked(template) if differ(project / name, template / name)}
    assert changed == {"docs/benchmarks.md", "mkdocs.yml", "pyproject.toml"}


def differ(left: Path, other: Path) -> bool:
    return left.read_bytes() != other.read_bytes() or left.stat().st_mode != other.stat().st_mode


def test_project_has_its_own_names_in_airflow_and_on_pages(template, project, shell):
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    assert settings["project"]["urls"] == {"Issues": ISSUES}
    assert settings["project"]["name"] == NAME
    assert settings["tool"]["lockstep"] == {"title": TITLE, "prefix": PREFIX}
    old = tomllib.loads((template / "pyproject.toml").read_text())
    old["project"]["name"], old["tool"]["lockstep"] = NAME, settings["tool"]["lockstep"]
    assert settings == old
    with open(project / "mkdocs.yml") as file:
        assert yaml.safe_load(file)["site_name"] == TITLE
    printed = shell(".venv/bin/python", "-c", LIST, str(shell.log)).splitlines()
    (ids,) = [json.loads(line[4:]) for line in printed if line[:4] == "ids "]
    files = {path.stem for path in (project / "dags").glob("*.py")} - {"__init__", "nightly"}
    assert ids["dags"] == sorted(PREFIX + name for name in {*files, "streaming_regression_nightly"})
    assert ids["errors"] == []
    assert all(label.startswith(f"{TITLE}: ") for label in ids["labels"])
    assert ids["tags"] == [PREFIX.rstrip("_")]
    assert ids["triggers"] == f"{PREFIX}streaming_regression"
    assert ids["assets"] == [f"{PREFIX}lockstep/validated"]
    assert ids["connections"] == [f"{PREFIX}local", f"{PREFIX}spark_default"]
    assert (ids["pools"], ids["task pools"]) == (["default_pool"], ids["pools"])
    page = shell(".venv/bin/python", "-c", PAGE)
    assert f"<b>{escape(TITLE)}</b>" in page
    assert f"<code>{PREFIX}streaming_regression</code>" in page
    assert ">Lockstep<" not in page


def check_update(project: Path) -> None:
    smoke = (project / "dags/matrices/smoke.yaml").read_text()
    assert smoke.startswith("# The first line is the project's.\n")
    assert smoke.endswith("# The last line is the template's.\n")
    assert (project / "README.md").read_text().startswith("# The fraud team's checks\n")
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    assert (settings["project"]["name"], settings["project"]["version"]) == (NAME, "0.2.0")
    assert settings["tool"]["lockstep"]["prefix"] == PREFIX
    assert (project / "streaming_core/apps/cards.py").exists()
    assert not (project / "docs/how-to/choose-a-plan.md").exists()
    state = subprocess.run(["git", "status", "--short"], cwd=project, capture_output=True, text=True, check=True)
    changes = {line[3:]: line[:2].strip() for line in state.stdout.splitlines()}
    assert changes == {
        ".copier-answers.yml": "M",
        "dags/matrices/smoke.yaml": "M",
        "docs/new.md": "??",
        "docs/overview.png": "D",
        "pyproject.toml": "M",
    }


@pytest.mark.parametrize("answer", ["name=checks\n", "title=two\nlines", "issues=mail me"])
def test_answer_that_is_no_line_is_refused(template, tmp_path, answer):
    with pytest.raises(AssertionError, match="Validation error"):
        copier(tmp_path, "copy", "--defaults", "--data", f"name={NAME}", "--data", answer, str(template), "new")
    assert not (tmp_path / "new").exists()


def test_project_runs_an_application_and_is_green_after_an_update(template, project, shell):
    output = shell("make", "run", "ARGS=--applications wc --events 2000 --repetitions 1 --seconds 0")
    assert re.search(r"All \d+ cells equal the oracle", output)
    assert f"<b>{escape(TITLE)}</b>" in (shell.home.reports / "index.html").read_text()
    update(project, template)
    check_update(project)
    assert shell(".venv/bin/lockstep", "check", "cards", "--events", "500")
    shell(".venv/bin/python", "-m", "infra.reference")  # as `make docs` does, because of the new application
    shell("make", ".lockstep-build/.site")
    assert shell(".venv/bin/python", "-m", "infra.lint") == ""
    output = shell(".venv/bin/python", "-m", "pytest", "-q", "-m", "not slow")
    assert re.search(r"\d\d+ passed", output)
    assert "skipped" not in output
