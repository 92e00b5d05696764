"""One broken rule at one line of one file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Violation:
    """A broken rule.

    Attributes:
        path: The file, relative to the root of the checkout, with forward slashes.
        line: Counted from 1.
        rule: The rule's id, for example `D103` or `prose/who-noun`.
        message: What is wrong and what to write instead.
        is_warning: Whether lint passes in spite of it.
    """

    path: str
    line: int
    rule: str
    message: str
    is_warning: bool = False

    def __str__(self) -> str:
        """Formats the violation as compilers do, so that editors can jump to it."""
        return f"{self.path}:{self.line}: {self.rule} {'warning: ' if self.is_warning else ''}{self.message}"
