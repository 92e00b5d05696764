"""Compiled operators are cached by what determines them. Their results: tests/differential, which calls them alone."""

import pyarrow as pa

from streaming_core.api import App, Param, i64, record
from streaming_core.kernels.program import compile_app
from streaming_core.machine_code import Kept
from tests.differential.kernel import Kernel

# This module's record and operator stand for an application's file.


@record
class Number:
    n: i64


def keeps(row, out):
    if row.n >= bound.params.limit:
        out.emit(n=row.n)


bound = App("bound", params={"limit": Param(3), "theta": Param(0.5)})
bound.source(Number).flat_map(keeps, Number).sink()
bound.generates(lambda *args: {})


def test_kernels_are_cached_by_the_parameters_that_operators_read(tmp_path):
    def output(**params):
        kernel = Kernel(bound, bound.bind(params), compile_app(bound, bound.bind(params), Kept(tmp_path)))
        return kernel.process(pa.table({"seq": [0, 1], "n": [2, 4]}))["n"].to_pylist()

    def kept():
        return len(list(tmp_path.iterdir()))

    assert output() == output(theta=0.9) == [4]
    assert kept() == 2  # the kernels, and which parameters they read
    assert output(limit=2) == output(limit=2, theta=0.0) == [2, 4]
    assert kept() == 3
    assert output() == [4]
