"""Operators compiled by numba behind the C ABI of runtime/README.md."""

from streaming_core.api.kernels.program import Program, compile_app, describe_error

__all__ = ["Program", "compile_app", "describe_error"]
