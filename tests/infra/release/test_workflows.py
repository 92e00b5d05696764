"""The workflow files, the hooks and the development container call commands that exist."""

import json
import re

import pytest
import yaml

from infra.checkout import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILES = "".join((ROOT / path).read_text() for path in ("Makefile", "infra/release/targets.mk"))
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILES, re.MULTILINE))
TARGETS |= set(" ".join(re.findall(r"^\.PHONY: (.*)$", MAKEFILES, re.MULTILINE)).split())


def check_targets(command):
    targets = re.findall(r"\bmake ([a-z-]+)", command)
    assert set(targets) <= TARGETS
    return targets


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_and_programs_of_the_checkout(path):
    workflow = yaml.safe_load(path.read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    programs = re.findall(r"(?<!\S)(\.ci/\w+)", "\n".join(commands))
    assert all((ROOT / program).is_file() for program in programs)
    actions = [step["uses"] for step in steps if step.get("uses", "").startswith("./")]
    assert all((ROOT / action / "action.yml").is_file() for action in actions)
    targets = [target for command in commands for target in check_targets(command)]
    assert programs or targets
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda path: path.stem)
def test_commands_get_text_of_others_in_variables_alone_and_start_modules_that_exist(path):
    content = yaml.safe_load(path.read_text())
    jobs = content["jobs"].values() if "jobs" in content else [content["runs"]]
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert commands
    assert not [command for command in commands if "${{" in command]
    for module in re.findall(r"-m (infra[\w.]*)", "\n".join(commands)):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
    assert "pull_request_target" not in content.get(True, {})  # YAML reads the key `on` as a truth value


def test_a_matrix_of_the_nightly_workflow_exists():
    (name,) = re.findall(r"--matrix (\w+)", (ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    assert (ROOT / "dags" / "matrices" / f"{name}.yaml").is_file()


def test_the_hooks_run_programs_that_setup_installs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    programs = [hook["entry"].split()[0] for hook in hooks]
    assert all((ROOT / program).exists() for program in programs if "/" in program)
    assert {program for program in programs if "/" not in program} == {"cargo", "make"}


def test_the_container_sets_the_checkout_up():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert check_targets(container["postCreateCommand"]) == ["setup"]
    assert (ROOT / ".devcontainer" / container["build"]["dockerfile"]).is_file()
