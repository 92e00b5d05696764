"""Many runs: what is asked for, the matrix of cells, where they lie, what is kept of them."""
