"""Receives a build on a host, which has nothing of Lockstep yet: the host's Python reads this file from its input.

    python - BUILDS DIGEST [UPLOAD]

The program prints what the host is, as one line of JSON. With UPLOAD, the name of a wheel in the folder BUILDS, it
unpacks the wheel to BUILDS/DIGEST first, and removes the upload.

A build is named after the SHA-256 of its RECORD, which lists the SHA-256 of each file. So the program can check a build
at any time, and checks it before every use. A build appears by a rename, whole and checked. Two programs may unpack the
same build at once. Builds that no cell has used for two days go.

The program uses the standard library, and syntax that an old Python can read: it has to say that the Python is too old.
"""

import base64
import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
import time
import zipfile

KEPT_SECONDS = 2 * 86400  # no cell takes so long, and shipping a build again takes seconds
OURS = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{16}\..*")  # builds; and what a killed program, or a lost upload, left


def unpack(upload: str, target: str, digest: str) -> None:
    """Unpack a wheel to `target`. A damaged wheel changes nothing."""
    scratch = tempfile.mkdtemp(prefix=".{}.".format(digest[:16]), dir=os.path.dirname(target))
    new = os.path.join(scratch, "new")
    try:
        with zipfile.ZipFile(upload) as wheel:
            wheel.extractall(new)
        if not is_whole(new, digest):
            return
        if os.path.isdir(target) and not is_whole(target, digest):
            os.rename(target, os.path.join(scratch, "damaged"))
        os.rename(new, target)
    except OSError as error:
        # Another program was quicker, or the archive is damaged (EINVAL).
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL):
            raise
    except Exception:  # zipfile has many kinds of them for a damaged archive
        pass
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.unlink(upload)


def is_whole(folder: str, digest: str) -> bool:
    """Whether a folder holds exactly the files of the build with this digest, apart from cached bytecode."""
    with contextlib.suppress(OSError, ValueError):
        (name,) = [name for name in os.listdir(folder) if name.endswith(".dist-info")]
        record = os.path.join(name, "RECORD")
        content = read(folder, record)
        if hashlib.sha256(content).hexdigest() != digest:
            return False
        lines = [line.rsplit(",", 2) for line in content.decode().splitlines()]
        if files(folder) != {path for path, _, _ in lines}:
            return False
        return all(path == record or "sha256=" + hash_of(read(folder, path)) == known for path, known, _ in lines)
    return False


def files(folder: str) -> set:
    """The relative paths of all files below a folder, apart from cached bytecode."""
    return {
        os.path.relpath(os.path.join(at, name), folder)
        for at, _, names in os.walk(folder)
        if os.path.basename(at) != "__pycache__"
        for name in names
    }


def read(folder: str, path: str) -> bytes:
    """The content of a file below a folder."""
    with open(os.path.join(folder, path), "rb") as file:
        return file.read()


def hash_of(content: bytes) -> str:
    """A hash as a RECORD spells it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def remove_unused(builds: str) -> None:
    """Remove builds and uploads that nothing has used for KEPT_SECONDS."""
    for name in os.listdir(builds):
        path = os.path.join(builds, name)
        with contextlib.suppress(OSError):  # another program removes it too
            if OURS.fullmatch(name) and time.time() - os.stat(path).st_mtime > KEPT_SECONDS:
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def about(builds: str, digest: str) -> dict:
    """The facts of the host that a build must fit."""
    environment = os.path.join(os.path.dirname(builds), "environment", "bin", "python")
    return {
        "time": time.time(),
        "environment": environment if os.path.exists(environment) else None,
        "glibc": [int(part) for part in platform.libc_ver()[1].split(".")[:2] if part] or None,
        "builds": builds,
        "build": digest if is_whole(os.path.join(builds, digest), digest) else None,
        "python": platform.python_version(),
        "version": list(sys.version_info[:2]),
        "implementation": platform.python_implementation(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "platform": sysconfig.get_platform(),
    }


def main(builds: str, digest: str, upload: str = "") -> int:
    """Unpack the upload, if there is one; print what the host is, and whether it has the build."""
    builds = os.path.abspath(os.path.expanduser(builds))
    target = os.path.join(builds, digest)
    try:
        os.makedirs(builds, mode=0o700, exist_ok=True)
        if upload:
            unpack(os.path.join(builds, upload), target, digest)
        if os.path.isdir(target):
            os.utime(target)
        remove_unused(builds)
    except OSError as error:
        print(json.dumps({"error": "{}: {}".format(error.filename or builds, error.strerror)}))
        return 1
    print(json.dumps(about(builds, digest)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
