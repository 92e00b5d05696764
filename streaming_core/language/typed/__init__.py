"""The reader of the operator language: what an operator function may say, and which type each part of it has.

A function is read from its source as a tree. Every expression gets its static type (integer, float, boolean, text, row,
array, container) and every conversion that the language implies becomes a node of its own; what has no type is no part
of the language and is refused, with file, line and reason.

The oracle alone sees the trees, and gives them their meaning twice: interpreted, and as a compiled loop. The compiler
of kernels does not import this package (tests/unit/test_layers.py): what it makes of an operator, numba finds in the
source by itself. So a type or a conversion that is wrong here makes results differ; it cannot make both sides wrong.
"""

from streaming_core.language.typed.program import Program

__all__ = ["Program"]
