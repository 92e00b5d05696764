"""The reader of the operator language: it checks every operator function and finds the type of each part.

    functions    plain `def`s of positional arguments that call each other, not themselves; names without a leading _
    statements   assignment to one variable, scalar field or item of an array; if, while, for over range; break,
                 continue, pass, return; calls
    expressions  64-bit integers, doubles, booleans, text; + - * / // % & | ^ << >> ~ and or not, comparisons, `in`,
                 x if c else y, t[a:b], a[i], queue[i].field; len min max abs int float bool; methods of text and of
                 containers
    names        parameters, numbers and constants of the application; its tables, in txn.row and txn.result
    variables    of one type in a function, and with a value wherever they are read
    out, txn     used only by their own names, so that the reader sees the order of a plan's accesses

The reader turns the source of a function into a tree. Every expression gets its static type (integer, float, boolean,
text, row, array, container). Every conversion that the language implies becomes a node of its own. The reader rejects
source without a type, with file, line and reason.

Only the oracle uses the trees. It gives them their meaning twice: interpreted, and as a compiled loop. The kernel
compiler does not import this package (tests/test_layers.py): numba finds the types in the source by itself. So a
wrong type or conversion here makes the two sides differ; it cannot make both wrong.
"""

from streaming_core.language.typed.program import Program

__all__ = ["Program"]
