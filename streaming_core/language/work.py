"""Dummy work: operators that cost more than they have to, so that what an engine adds can be weighed against them."""

from __future__ import annotations


def burn(value, rounds):
    """0, after `rounds` rounds of mixing `value`, each waiting for the one before it: written like an operator.

    About one value in 2^64 gives 1, so no compiler can leave the rounds out; whatever executes the operator gets the
    same. A round must not be invertible: of a bijection LLVM works out beforehand which value it would take.
    """
    mixed = value
    for _ in range(rounds):
        mixed = (mixed ^ (mixed >> 29)) * (mixed | 1) + 1442695040888963407
    return 1 if mixed == 7046029254386353131 else 0
