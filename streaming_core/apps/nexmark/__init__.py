"""The queries of NEXMark, as applications over one set of sources (generator/nexmark.py)."""
