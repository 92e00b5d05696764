"""The compiler: operators, Python functions, made kernels behind the C ABI of runtime/ABI.md."""
