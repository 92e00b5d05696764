"""Makes numba's signed integers wrap around, in whatever is compiled after this was imported.

numba tells LLVM that sums, differences and products of signed integers do not overflow, and LLVM believes it: of
`x * x % 6` it takes the unsigned remainder, because a square cannot be negative. Operators wrap around.
"""

from numba.cpython import numbers

if not hasattr(numbers, "_int_arith_flags"):
    raise ImportError("this numba does not say where signed overflow is undefined (numba.cpython.numbers)")
numbers._int_arith_flags = lambda kind: []
