"""The former name of `python -m infra.reference`, until every branch calls the new one."""

import runpy

if __name__ == "__main__":
    runpy.run_module("infra.reference", run_name="__main__")
