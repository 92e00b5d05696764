"""The kernel compiler: compiles operators, which are Python functions, to kernels with the C ABI of runtime/ABI.md."""
