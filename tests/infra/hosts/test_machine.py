"""The facts of a host that its system tells, and the warnings that follow from them."""

import pytest

from infra.hosts import machine
from streaming_core.regression.preflight import Preflight


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_strictest_control_group_counts(tmp_path):
    write(tmp_path, cpu__max="max 100000")
    write(tmp_path / "jobs", cpu__max="600000 100000", memory__max=1000, memory__current=400)
    write(tmp_path / "jobs" / "one", cpu__max="800000 100000", memory__max="max")
    assert machine.limits(tmp_path, "/jobs/one") == (6.0, 600)
    assert machine.limits(tmp_path, "/") == (None, None)
    assert machine.limits(tmp_path / "absent", "/jobs") == (None, None)


@pytest.mark.parametrize(
    ("folder", "files", "state"),
    [
        ("cpu/intel_pstate", {"no_turbo": 0}, "intel_pstate"),
        ("cpu/intel_pstate", {"no_turbo": 1}, "off"),
        ("cpu/cpufreq", {"boost": 1}, "cpufreq"),
        ("cpu/cpufreq", {"boost": 0}, "off"),
        ("cpu", {}, None),
    ],
)
def test_turbo_is_known_by_its_interface(tmp_path, folder, files, state):
    write(tmp_path / folder, **files)
    assert machine.turbo(tmp_path) == state


DISTANCES = [[10, 21], [21, 10]]


@pytest.mark.parametrize(
    ("facts", "what", "command"),
    [
        ({"governor": "powersave"}, "governor powersave", "sudo cpupower frequency-set -g performance"),
        ({"turbo": "intel_pstate"}, "turbo on", "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"),
        ({"turbo": "cpufreq"}, "turbo on", "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost"),
        ({"numa_balancing": True}, "NUMA balancing on", "sudo sysctl kernel.numa_balancing=0"),
        (
            {"transparent_hugepages": "never"},
            "transparent huge pages never",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        ({"quota": 6.0}, "a control group grants the time of 6 of 8 cores", ""),
        ({"load": 3.0}, "load 3.0 on 8 cores", ""),
    ],
)
def test_disturbance_has_a_warning_and_the_command_that_removes_it(facts, what, command):
    host = Preflight("numa", cores=8, sockets=[2, 2], distances=DISTANCES, **facts)
    assert host.warnings == [(what, command)]
    assert host.warning == what


def test_quiet_host_has_no_warning():
    quiet = {"governor": "performance", "turbo": "off", "numa_balancing": False, "transparent_hugepages": "madvise"}
    assert Preflight("numa", cores=8, distances=DISTANCES, load=0.1, **quiet).warnings == []
    assert Preflight("unknown").warnings == []
    assert Preflight("one node", distances=[[10]], numa_balancing=True).warnings == []


def test_this_machine_says_where_its_threads_go():
    places = machine.places()
    assert sum(places["sockets"]) <= places["cores"]
    assert places["bound"]
    assert len(places["distances"]) == len(places["distances"][0])
