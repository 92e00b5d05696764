"""Stacks from the output of perf: kernels by the map, functions by short names, and nothing from outside the engine."""

from collections import Counter

import pytest

from infra.profile.stacks import UNNAMED, Kernels, count, short

MAP = "1000 100 split.map\n2000 80 count.process\n"
ENGINE, JIT, LINUX = "/x/streaming_core/_runtime.abi3.so", "/tmp/perf-7.map", "[kernel.kallsyms]"
PYTHON = "/usr/lib/libpython3.so"


def sample(*frames: tuple[int, str, str]) -> list[str]:
    """The lines of a sample, whose frames are given outermost first."""
    return ["", *(f"\t{address:16x} {symbol} ({file})" for address, symbol, file in reversed(frames)), ""]


THREAD = (9, "std::sys::backtrace::__rust_begin_short_backtrace", ENGINE)
ATTEMPT = (9, "_runtime::threads::team::TeamState::attempt", ENGINE)
WORK = (9, "_runtime::dataflow::frame::Dataflow<W>::section::{{closure}}", ENGINE)
INTERPRETER = (9, "_PyEval_EvalFrameDefault", PYTHON)


@pytest.mark.parametrize(
    ("frames", "stack"),
    [
        ([(0x1000, "[unknown]", JIT)], ("operators", "split", "split.map")),
        ([(0x10FF, "[unknown]", JIT)], ("operators", "split", "split.map")),
        ([(0x1100, "[unknown]", JIT)], None),
        (
            [(0x2001, "[unknown]", JIT), (9, "_runtime::rows::buffer::grow", ENGINE)],
            ("operators", "count", "count.process", "rows::buffer::grow"),
        ),
        ([THREAD, ATTEMPT, WORK, WORK], ("runtime", "frame::Dataflow::section")),
        ([INTERPRETER, (9, "_runtime::python::Engine::__pymethod_process__", ENGINE), ATTEMPT], ("runtime",)),
        ([INTERPRETER], None),
        ([INTERPRETER, (9, "_runtime::python::__pyfunction_fill_rows", ENGINE), WORK], None),
        (
            [WORK, (9, "__sched_yield", "/lib/libc.so.6"), (9, "do_syscall_64", LINUX), (9, "__x64_sys_read", LINUX)],
            ("runtime", "frame::Dataflow::section", "__sched_yield", "Linux: read"),
        ),
        ([WORK, (9, "asm_exc_page_fault", LINUX)], ("runtime", "frame::Dataflow::section", "Linux: page fault")),
        ([WORK, (9, "asm_common_interrupt", LINUX)], ("runtime", "frame::Dataflow::section", "Linux: interrupt")),
    ],
)
def test_sample_becomes_the_stack_of_the_engine(frames, stack):
    assert count(sample(*frames), Kernels(MAP)) == Counter({stack: 1} if stack else {})


def test_kernels_of_a_build_without_a_map_are_unnamed():
    assert count(sample((0x1000, "[unknown]", JIT)), Kernels("")) == {("operators", UNNAMED): 1}


def test_equal_stacks_count_together_and_warnings_of_perf_are_ignored():
    lines = [*sample(WORK), "Warning:", "Processed 9 events and lost 1 chunks!", *sample(WORK), *sample(INTERPRETER)]
    assert count(lines, Kernels(MAP)) == {("runtime", "frame::Dataflow::section"): 2}


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (
            "<_runtime::dataflow::frame::Dataflow<W> as x::Executor>::process",
            "frame::Dataflow::process",
        ),
        (
            "_runtime::pooled::lanes::<impl _runtime::dataflow::Pool<A<B>>>::run_lane",
            "pooled::lanes::run_lane",
        ),
        ("core::ptr::drop_in_place<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place"),
        ("__memmove_avx_unaligned_erms", "__memmove_avx_unaligned_erms"),
    ],
)
def test_function_has_the_last_parts_of_its_path(symbol, name):
    assert short(symbol) == name
