"""Waits before the engine starts, while a test wants it to. An Airflow connection names it as the wrapper.

LOCKSTEP_APP_HOLD names a folder. The engine writes a file there, named by its host's lock and its process, and waits
while the folder has a file `hold`.
"""

import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    folder, host = Path(os.environ["LOCKSTEP_APP_HOLD"]), Path(os.environ["LOCKSTEP_HOST_LOCK"]).parent.name
    (folder / f"{host}-{os.getpid()}").touch()
    while (folder / "hold").exists():
        time.sleep(0.05)
    os.execvp(sys.argv[1], sys.argv[1:])
