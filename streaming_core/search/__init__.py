"""The search for faults: draws workloads and ways of executing, compares with the oracle, and shrinks what differs.

- `case.py`: a case is everything that a trial needs; a folder keeps it.
- `draws.py` draws workloads, `ways.py` ways of executing; `corpus.py` remembers inputs, and what was tried.
- `trial.py` tries a case and names the symptom; `laboratory.py` does so in processes that may crash or hang.
- `scenario.py`: what a property of an author sees.
- `shrinking.py` makes a case smaller; `search.py` puts all together; `find.py` writes what the engineer gets.
"""
