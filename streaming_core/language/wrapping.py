"""A patch that makes numba's signed integers wrap around in all code compiled after this import.

numba tells LLVM that sums, differences and products of signed integers do not overflow. LLVM relies on it: for
`x * x % 6` it takes the unsigned remainder, because a square cannot be negative. Operators wrap around instead.
"""

from numba.cpython import numbers

if not hasattr(numbers, "_int_arith_flags"):
    raise ImportError("this numba does not say where signed overflow is undefined (numba.cpython.numbers)")
numbers._int_arith_flags = lambda kind: []
