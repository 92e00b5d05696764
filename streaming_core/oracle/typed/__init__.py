"""The front half of the oracle: an operator function, read from its source, as a typed tree.

Every expression gets its static type (integer, float, boolean, text, row, array, container) and every conversion that
the language implies becomes a node of its own, so that the interpreter and the compiled loop, which print this tree in
two ways, cannot disagree about what an operator means. Shares nothing with the translation the runtime's kernels get.
"""

from streaming_core.oracle.typed.program import Program

__all__ = ["Program"]
