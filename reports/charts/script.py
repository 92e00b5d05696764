"""The script that draws charts in a browser: Vega, Vega-Lite, vega-embed and charts.js in one file.

The pages load this one file and no other. Its name has its digest: a page allows the script by that digest alone. It
takes seconds to bundle, so the build folder of the checkout keeps the text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from reports.site import HERE
from streaming_core.storage import digest_of, write_text

SOURCE = (HERE / "charts.js").read_text()
BUILD = HERE.parent / ".lockstep-build"
NAME = re.compile(r"charts-[0-9a-f]{64}\.js")


@cache
def text() -> str:
    """The content of the file."""
    file = BUILD / f"charts-{digest_of([SOURCE, version('vl-convert-python')])}.js"
    with suppress(OSError):
        return file.read_text()
    import vl_convert

    script = f"(() => {{{vl_convert.javascript_bundle(SOURCE)}}})();\n"
    with suppress(OSError):  # a checkout that this user may only read
        file.parent.mkdir(exist_ok=True)
        write_text(file, script)
    return script


@cache
def name() -> str:
    """The name of the file, below the reports."""
    return f"charts-{hashlib.sha256(text().encode()).hexdigest()}.js"


def integrity(file: str) -> str:
    """The digest in the name of a file, as pages and policies write it: `sha256-...`."""
    digest = bytes.fromhex(Path(file).stem.removeprefix("charts-"))
    return f"sha256-{base64.b64encode(digest).decode()}"


def sources(reports: Path) -> str:
    """The scripts in the folder of the reports, as the directive `script-src` lists them; empty without any.

    Pages of earlier versions load the scripts of these versions.
    """
    names = sorted(path.name for path in reports.glob("*.js") if NAME.fullmatch(path.name))
    return " ".join(f"'{integrity(script)}'" for script in names)
