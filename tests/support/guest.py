"""A small Linux machine with two memory nodes, emulated by QEMU: it boots, runs one command and powers off.

The guest has two sockets with a node each, two cores per socket and two hardware threads per core. Its root is this
machine's, over 9p and read-only, so its programs are ours. /dev/shm is its only writable folder. No image is needed:
the kernel is Debian's, and a ramdisk loads the modules of 9p and enters the root.

The guest is slow, and its times say nothing about the speed of a machine.
"""

import lzma
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.programs import require

PATIENCE = 900
GIGABYTES = 2  # of each node
NODES = (
    *("-smp", "8,sockets=2,cores=2,threads=2"),
    *("-m", f"{2 * GIGABYTES}G"),
    *("-object", f"memory-backend-ram,id=ram0,size={GIGABYTES}G"),
    *("-object", f"memory-backend-ram,id=ram1,size={GIGABYTES}G"),
    *("-numa", "node,nodeid=0,cpus=0-3,memdev=ram0"),
    *("-numa", "node,nodeid=1,cpus=4-7,memdev=ram1"),
    *("-numa", "dist,src=0,dst=1,val=21"),
)
PROCESSOR = "max,vendor=GenuineIntel"  # an AMD processor would show no hardware threads
ACCELERATOR = "tcg,thread=single"  # with several threads, QEMU 7.2 crashes now and then
SHARED = ("-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap")
KERNEL = "console=ttyS0 quiet panic=-1 mitigations=off"
MODULES = ("virtio_pci", "9pnet_virtio", "9p")
# The command's output is on the console. Its third descriptor is a serial line to a file of ours.
INIT = """#!/bin/busybox sh
set -e
for module in /modules/*; do busybox insmod $module; done
busybox mkdir /machine
busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /machine
busybox mount -t proc proc /machine/proc
busybox mount -t sysfs sys /machine/sys
busybox mount -t devtmpfs dev /machine/dev
busybox mkdir /machine/dev/shm
busybox mount -t tmpfs shm /machine/dev/shm
busybox stty -F /machine/dev/ttyS1 raw
busybox chroot /machine {command} 3>/machine/dev/ttyS1 || echo "the command failed: $?"
busybox poweroff -f
"""


def require_packages() -> list[str]:
    """The paths of QEMU, busybox and a kernel. Without one of them, the test is skipped."""
    return [require(package) for package in ("qemu-system-x86", "busybox", "linux-image-amd64")]


def run(command: Sequence[str], variables: Mapping[str, str], folder: Path) -> str:
    """Boot the guest, run a command in it as this user, and return what the command writes to descriptor 3.

    Args:
        command: The command, by its path.
        variables: Its environment, beside those of a writable home.
        folder: Receives the ramdisk and the console.
    """
    qemu, busybox, kernel = require_packages()
    variables = {"HOME": "/dev/shm", "TMPDIR": "/dev/shm", **variables}
    user = ("setpriv", f"--reuid={os.getuid()}", f"--regid={os.getgid()}", "--clear-groups")
    words = [*user, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *command]
    (folder / "initrd").write_bytes(_archive(dict(_ramdisk(Path(busybox), Path(kernel), shlex.join(words)))))
    console, answer = folder / "console", folder / "answer"
    arguments = [
        *(qemu, "-accel", ACCELERATOR, "-cpu", PROCESSOR, "-nodefaults", "-display", "none", "-no-reboot"),
        *(*NODES, *SHARED, "-kernel", kernel, "-initrd", str(folder / "initrd"), "-append", KERNEL),
        *("-serial", f"file:{console}", "-serial", f"file:{answer}"),
    ]
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"QEMU ended with {done.returncode}: {done.stderr}"
    text = answer.read_text()
    assert text, console.read_text(errors="replace")[-5000:]
    return text


def _ramdisk(busybox: Path, kernel: Path, command: str) -> Iterator[tuple[str, tuple[int, bytes]]]:
    """Mode and content of each file of the ramdisk, by path."""
    libraries = subprocess.run(["ldd", busybox], capture_output=True, text=True).stdout
    files = {Path("/bin/busybox"): busybox.read_bytes()}
    files |= {Path(path): Path(path).read_bytes() for path in re.findall(r"(/\S+) \(0x", libraries)}
    folders = {parent for path in files for parent in path.parents if parent.name} | {Path("/modules")}
    for folder in sorted(folders):
        yield str(folder)[1:], (0o040755, b"")
    for path, content in files.items():
        yield str(path)[1:], (0o100755, content)
    for number, content in enumerate(_modules(Path("/lib/modules") / kernel.name.partition("-")[2])):
        yield f"modules/{number:02}", (0o100644, content)
    yield "init", (0o100755, INIT.format(command=command).encode())


def _modules(folder: Path) -> Iterator[bytes]:
    """The modules of 9p, each behind those that it depends on. A module that is missing is built into the kernel."""
    paths = {path.name.partition(".")[0].replace("-", "_"): path for path in folder.rglob("*.ko*")}
    loaded = set()

    def load(name: str) -> Iterator[bytes]:
        if name in loaded or name not in paths:
            return
        loaded.add(name)
        content = paths[name].read_bytes()
        if paths[name].suffix == ".xz":
            content = lzma.decompress(content)
        (depends,) = re.findall(rb"\0depends=([^\0]*)\0", content)
        for other in filter(None, depends.decode().split(",")):
            yield from load(other.replace("-", "_"))
        yield content

    for name in MODULES:
        yield from load(name)


def _archive(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """An archive of files by path, in cpio's format `newc`, which the kernel unpacks."""
    archive = b""
    for number, (path, (mode, content)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))]):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + path.encode() + b"\0"
        for part in (head, content):
            archive += part + bytes(-len(part) % 4)
    return archive
