"""Where engines are: folders with a manifest, and packages with an entry point.

- Each folder in infra/engines of the checkout that has an engine.yaml. The setting LOCKSTEP_ENGINES names another
  folder instead.
- Each entry point of the group `lockstep.executors` names a package. The package's folder is the engine's folder, and
  the entry point's name is the engine's.

Nothing of an engine is imported, because its packages are in an environment of its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from pydantic import ValidationError

from streaming_core.apps.registry import NAME
from streaming_core.engines.contract import Manifest
from streaming_core.errors import BadInput, one_line, unknown

SETTING = "LOCKSTEP_ENGINES"
GROUP = "lockstep.executors"
MANIFEST = "engine.yaml"
_CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Engine:
    """An engine.

    Attributes:
        name: Its name.
        folder: Its folder.
        manifest: Its declaration.
    """

    name: str
    folder: Path
    manifest: Manifest


def folder() -> Path:
    """The folder of engines: LOCKSTEP_ENGINES, from the checkout on; else `infra/engines` there."""
    return _CHECKOUT / (os.environ.get(SETTING) or "infra/engines")


def names() -> list[str]:
    """The names of all engines, sorted. Reads no manifest, so that an invalid one does no harm here."""
    return sorted(_folders(str(folder())))


def load(name: str) -> Engine:
    """The engine of a name.

    Raises:
        BadInput: There is no such engine, or its manifest is invalid.
    """
    folders = _folders(str(folder()))
    if name not in folders:
        raise BadInput(unknown("engine", name, sorted(folders)))
    import yaml  # takes longer to import than all else of a spec

    path = folders[name] / MANIFEST
    try:
        content = yaml.safe_load(path.read_text())
        return Engine(name, folders[name], Manifest.model_validate(content))
    except OSError as error:
        raise BadInput(f"engine {name}: cannot read {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"engine {name}: {path} is not valid YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise BadInput(f"engine {name}: {path}: {one_line(error, fields=Manifest.model_fields)}") from None


def _folders(root: str) -> dict[str, Path]:
    """The folder of each engine, by name. A folder in `root` comes before an entry point of the same name."""
    local = {path.parent.name: path.parent for path in Path(root).glob(f"*/{MANIFEST}")}
    return {name: path for name, path in (_packages() | local).items() if NAME.fullmatch(name)}


@cache
def _packages() -> dict[str, Path]:
    """The folders of engines that are installed as packages."""
    specs = {point.name: find_spec(point.value) for point in entry_points(group=GROUP)}
    return {name: Path(spec.origin).parent for name, spec in specs.items() if spec and spec.origin}
