"""Fill ENGINE_HOME: Flink's jars, as jars.lock lists them, and the compiled classes of the Java program."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
HOME = Path(os.environ["ENGINE_HOME"])


def run(command: list[str], package: str) -> None:
    """Run a command, or end with one line."""
    try:
        code = subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        sys.exit(f"flink: no `{command[0]}` on PATH; install it (Debian: {package})")
    if code:
        sys.exit(f"flink: `{command[0]}` failed with exit code {code}; its output is above")


def copy_jars(jars: Path) -> None:
    """Let Maven copy the jars of pom.xml, and compare them with the lock."""
    shutil.rmtree(jars, ignore_errors=True)
    maven = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    run([*maven, f"-DoutputDirectory={jars}"], "maven")
    lock = {name: digest for digest, name in (line.split() for line in (HERE / "jars.lock").read_text().splitlines())}
    copies = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars.iterdir()}
    if wrong := sorted(name for name in lock.keys() | copies.keys() if lock.get(name) != copies.get(name)):
        sys.exit(f"flink: jars that differ from jars.lock: {', '.join(wrong)}; if you changed pom.xml, see README.md")


def main() -> None:
    """Copy the jars and compile the program."""
    copy_jars(HOME / "jars")
    shutil.rmtree(HOME / "classes", ignore_errors=True)
    javac = ["javac", "--release", "17", "-cp", f"{HOME}/jars/*", "-d", f"{HOME}/classes"]
    run([*javac, *map(str, sorted((HERE / "lockstep").glob("*.java")))], "openjdk-17-jdk-headless")


main()
