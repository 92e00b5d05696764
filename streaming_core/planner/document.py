"""Documents: JSON files that people write, validated strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from streaming_core.errors import BadInput, one_line, refusal
from streaming_core.storage import save_json

Amount = Annotated[float, Field(ge=0.0)]  # of nanoseconds, bytes, rows


class Document(BaseModel):
    """The content of a file, or a part of it: declared fields and finite numbers only."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the document in a file.

        Raises:
            BadInput: one line with file, field and reason.
        """
        try:
            return cls.model_validate(from_json(path.read_bytes()))
        except OSError as error:
            raise refusal(error) from None
        except ValidationError as error:
            raise BadInput(f"{path}: {one_line(error)}") from None
        except ValueError as error:
            raise BadInput(f"{path}: invalid JSON: {error}") from None

    def changed(self, **fields: Any) -> Self:
        """Return the document with these fields replaced: validated again, without cached values."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | fields)

    def save(self, path: Path) -> None:
        """Write it to a file, whole or not at all.

        Raises:
            BadInput, CommandFailed: it cannot be written.
        """
        save_json(path, self.model_dump(mode="json"))
