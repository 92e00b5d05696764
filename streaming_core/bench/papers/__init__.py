"""The suites: a folder for each paper, with its experiments, claims and workloads.

Nothing outside imports this folder, so a project can leave it out. It then has no suites.
"""

# The module of each suite, which defines SUITE, in the order of docs/benchmarks.md.
SUITES = {
    "tstream": "tstream.tstream",
    "ordered": "ordered.ordered",
    "viper": "viper.viper",
    "briskstream": "briskstream.briskstream",
    "stretch": "stretch.stretch",
    "scaling": "goals.scaling",
    "engines": "goals.engines",
    "nexmark": "goals.nexmark",
}
