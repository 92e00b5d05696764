"""The reader of the operator language: what an operator function may say, and which type each part of it has.

    functions    plain `def`s of positional arguments that call each other, not themselves; names without a leading _
    statements   assignment to one variable, scalar field or item of an array; if, while, for over range; break,
                 continue, pass, return; calls
    expressions  64-bit integers, doubles, booleans, text; + - * / // % & | ^ << >> ~ and or not, comparisons, `in`,
                 x if c else y, t[a:b], a[i], queue[i].field; len min max abs int float bool; methods of text and of
                 containers
    names        parameters, numbers and constants of the application; its tables, in txn.row and txn.result
    variables    of one type in a function, and with a value wherever they are read
    out, txn     called by their names: never kept, chosen or handed back, so that a plan's order can be read

A function is read from its source as a tree. Every expression gets its static type (integer, float, boolean, text, row,
array, container) and every conversion that the language implies becomes a node of its own; what has no type is no part
of the language and is refused, with file, line and reason.

The oracle alone sees the trees, and gives them their meaning twice: interpreted, and as a compiled loop. The compiler
of kernels does not import this package (tests/unit/test_layers.py): what it makes of an operator, numba finds in the
source by itself. So a type or a conversion that is wrong here makes results differ; it cannot make both sides wrong.
"""

from streaming_core.language.typed.program import Program

__all__ = ["Program"]
