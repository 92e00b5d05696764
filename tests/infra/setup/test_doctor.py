"""The doctor reports each missing tool in one line, and runs on a Python too old for the rest."""

import ast
import contextlib
import os
import re
import subprocess
import sys

import pytest

from infra.checkout import ROOT
from tests.support import programs
from tests.support.browser import Browser
from tests.support.sshd import Sshd

DOCTOR = ROOT / "infra" / "setup" / "doctor"


def doctor(*arguments, **environment):
    environment = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        [sys.executable, str(DOCTOR), *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def machine(tmp_path):
    """A machine with nothing on PATH but the tools a test puts there, each printing the text given for it."""

    def with_tools(**prints):
        for tool, text in prints.items():
            path = tmp_path / tool
            path.write_text(f"#!/bin/sh\n/bin/cat <<'end'\n{text}\nend\n")
            path.chmod(0o755)
        return str(tmp_path)

    return with_tools


NEW_ENOUGH = {"java": 'openjdk version "21.0.4" 2024-07-16', "rustc": "rustc 1.95.0 (abc 2026-01-01)"}
NEW_ENOUGH |= {"cargo": "cargo 1.95.0", "cc": "cc 12.2", "rustfmt": "rustfmt 1.9", "clippy-driver": "clippy 0.1.95"}


def lines_missing(done):
    return [line for line in done.stdout.splitlines() if line.startswith("missing")]


def test_complete_machine_has_one_line_per_item_and_exit_0(machine):
    done = doctor(PATH=machine(**NEW_ENOUGH))
    assert done.returncode == 0, done.stdout
    assert all(line.startswith(("ok ", "optional ")) for line in done.stdout.splitlines())
    assert "21.0.4" in done.stdout
    assert "1.95.0" in done.stdout
    done = doctor("--quiet", PATH=machine(**NEW_ENOUGH))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# A tool, its version if it has one, and the start of the line.
FAULTS = [
    ("java", 'java version "1.8.0_401"', "java .*too old"),
    ("java", 'openjdk version "11.0.2" 2019-01-15', "java .*too old"),
    ("rustc", "rustc 1.63.0 (4b91a6ea7 2022-08-08)", "rust .*too old"),
    ("rustc", "rustc 1.84.1 (abc 2025-01-27)", "rust .*too old"),
    *((tool, None, f"{item}.*not found") for tool, item in (("java", "java"), ("rustc", "rust"), ("cargo", "rust"))),
    ("cc", None, "c comp.*not found"),
]


@pytest.mark.parametrize(("tool", "prints", "line"), FAULTS)
def test_outdated_or_missing_tool_is_one_line_with_a_remedy(machine, tool, prints, line):
    tools = {name: text for name, text in (NEW_ENOUGH | {tool: prints}).items() if text}
    done = doctor("--quiet", PATH=machine(**tools))
    assert done.returncode == 1
    (missing,) = lines_missing(done)
    assert re.match(rf"missing +{line}.*; to fix: \S+", missing)


def test_java_home_takes_precedence_as_in_spark(machine, tmp_path):
    done = doctor("--quiet", PATH=machine(**NEW_ENOUGH), JAVA_HOME=str(tmp_path / "nowhere"))
    (line,) = lines_missing(done)
    assert "JAVA_HOME" in line


def test_debian_packages_are_named_if_apt_exists(machine):
    tools = {name: text for name, text in NEW_ENOUGH.items() if name != "cc"}
    done = doctor("--quiet", PATH=machine(**tools, **{"apt-get": "apt"}))
    (line,) = lines_missing(done)
    assert "apt-get install -y build-essential" in line


def test_what_only_tests_need_is_listed_and_required_only_on_request(machine):
    tools = machine(**NEW_ENOUGH, **{"apt-get": "apt"})
    done = doctor(PATH=tools)
    assert done.returncode == 0
    lines = [line for line in done.stdout.splitlines() if line.startswith("optional")]
    assert any(
        re.match(r"optional test  .*chromium.* not found; to fix: .* install -y chromium", line) for line in lines
    )
    assert any(re.match(r"optional test-full .*debootstrap.*; to fix: ", line) for line in lines)
    done = doctor("--quiet", "--for=test", PATH=tools)
    assert done.returncode == 1
    (line,) = lines_missing(done)
    assert re.match(r"missing +test .*chromium", line)


def test_lint_without_its_tools_of_rust_is_one_line(machine):
    tools = machine(**{name: text for name, text in NEW_ENOUGH.items() if name not in ("rustfmt", "clippy-driver")})
    assert doctor("--quiet", PATH=tools).returncode == 0
    (line,) = lines_missing(doctor("--quiet", "--for=lint", PATH=tools))
    assert re.match(r"missing +lint +rustfmt and clippy-driver not found; to fix: \S+", line)


@pytest.mark.parametrize(("package", "server"), [("chromium", Browser), ("openssh-server", Sshd)])
def test_test_without_its_program_is_skipped_and_names_the_command(package, server, tmp_path, monkeypatch):
    monkeypatch.setitem(programs.DOCTOR["PROGRAMS"]["test"], package, ("nosuch",))
    with pytest.raises(pytest.skip.Exception, match=f"needs {package}; `make test YES=1` installs it: .*{package}$"):
        server(tmp_path / "new")


def test_continuous_integration_runs_the_command_of_the_readme():
    (block,) = re.findall(r"(?:^    make .*\n)+", (ROOT / "README.md").read_text(), re.MULTILINE)
    _, test = (line.partition("#")[0].strip() for line in block.splitlines())
    assert test == "make test YES=1"
    assert f"{test} PROFILE=ci" in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.fixture
def apt(machine, tmp_path):
    """A machine without a C compiler. Its apt-get and sudo record their calls; an installation adds the compiler."""
    tools = machine(**{name: text for name, text in NEW_ENOUGH.items() if name != "cc"})
    calls = tmp_path / "calls"
    installing = f"printf '#!/bin/sh\\necho cc 12\\n' > {tmp_path}/cc; /bin/chmod +x {tmp_path}/cc"
    for name, prefix in (("apt-get", ""), ("sudo", "sudo ")):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{prefix}$@" >> {calls}\ncase "$*" in *install*) {installing};; esac\n')
        program.chmod(0o755)
    return tools, calls


def test_doctor_installs_on_request_and_checks_again(apt):
    tools, calls = apt
    done = doctor("--quiet", "--yes", PATH=tools)
    assert (done.returncode, done.stdout) == (0, "doctor: installing build-essential\n")
    commands = [line.removeprefix("sudo apt-get ") for line in calls.read_text().splitlines()]
    assert commands == ["update -qq", "install -y build-essential -qq"]


def test_doctor_without_yes_or_terminal_installs_nothing_and_names_the_option(apt):
    tools, calls = apt
    done = doctor("--quiet", PATH=tools)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == ["make installs these Debian packages if you add YES=1: build-essential"]
    assert not calls.exists()


def screen(terminal: int) -> str:
    """All that a terminal has shown to its end. One read may return a part: the echo of an answer."""
    shown = b""
    # The end of a pseudo-terminal is EIO on Linux.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            shown += part
    return shown.decode()


@pytest.mark.parametrize(("answer", "installed"), [("y", True), ("n", False), ("", False)])
def test_doctor_asks_on_a_terminal(apt, answer, installed):
    tools, calls = apt
    ours, its = os.openpty()
    process = subprocess.Popen(
        [sys.executable, str(DOCTOR), "--quiet"], env={"PATH": tools}, stdin=its, stdout=its, stderr=its, close_fds=True
    )
    os.close(its)
    os.write(ours, f"{answer}\n".encode())
    code = process.wait(60)
    assert "Install build-essential with apt-get? [y/N]" in screen(ours)
    os.close(ours)
    assert (code == 0, calls.exists()) == (installed, installed)


def test_line_without_python_says_how_to_install_it(machine):
    """`make fit` on a machine with bash alone."""
    bootstrap = DOCTOR.with_name("python")
    environment = {"PATH": machine(**{"apt-get": "apt"})}
    done = subprocess.run(
        ["/bin/bash", bootstrap], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert re.fullmatch(
        r"missing  python      not found; to fix: (sudo )?apt-get update && (sudo )?apt-get install -y python3 "
        r"python3-venv\nmake installs it, and what else is missing, if you add YES=1\n",
        done.stdout,
    )


def test_usage_error_exits_with_2():
    assert doctor("--no-such-option").returncode == 2


def test_doctor_runs_on_a_python_too_old_for_lockstep_with_the_standard_library_only():
    tree = ast.parse(DOCTOR.read_text(), feature_version=(3, 6))
    assert not re.search(r"\bf[\"']", DOCTOR.read_text())
    nodes = list(ast.walk(tree))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names
