"""Extra work for operators: it makes them expensive, so that a benchmark can compare an engine's overhead with them."""

from __future__ import annotations


def burn(value: int, rounds: int) -> int:
    """Mix `value` in `rounds` rounds that wait for each other, and return 0. Operators can call it.

    About one value in 2^64 returns 1, so no compiler can leave the rounds out. Every engine computes the same result. A
    round must not be invertible: LLVM would compute beforehand the value for which a bijection returns 1.
    """
    mixed = value
    for _ in range(rounds):
        mixed = (mixed ^ (mixed >> 29)) * (mixed | 1) + 1442695040888963407
    return 1 if mixed == 7046029254386353131 else 0
