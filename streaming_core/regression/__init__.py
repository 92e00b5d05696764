"""Many runs: requests, the matrix of cells, their folders, their results and verdicts.

Read request.py first, then matrix.py, home.py and warehouse.py.
"""
