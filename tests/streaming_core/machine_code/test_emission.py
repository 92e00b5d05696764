"""The private parts of numba that streaming_core/machine_code/emission.py depends on."""

import re
from importlib.metadata import version
from pathlib import Path

from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.registry import cpu_target

from streaming_core.machine_code import emission

LOCK = Path(__file__).parents[3] / "requirements" / "runtime.lock"

CHECKED = "0.68.1"
OVERRIDDEN = {
    emission._Linked: {"_optimize_functions", "_optimize_final_module", "_finalize_specific",
     "get_pointer_to_function"},
    emission._Linking: {"_library_class", "_add_module", "set_env"},
}  # fmt: skip
UPGRADE = f"""\
streaming_core/machine_code/emission.py overrides private hooks of numba and was checked against numba {CHECKED}.
For another version:
1. read these in numba/core/codegen.py and numba/core/cpu.py, and adapt emission.py where they have changed:
   CPUCodeLibrary and JITCodeLibrary: _optimize_functions, _optimize_final_module, _finalize_specific,
   get_pointer_to_function, _ensure_finalized, _final_module, finalize;
   JITCPUCodegen: _library_class, _add_module, set_env, _data_layout, _tm; CPUContext: _internal_codegen, codegen,
   create_cfunc_wrapper;
2. run tests/differential, tests/streaming_core/kernels/test_kernels.py and tests/streaming_core/machine_code;
3. measure the compile time again as the head of emission.py says, and correct it there;
4. set CHECKED in this file.
"""


def test_numba_has_the_hooks_that_emission_overrides():
    [pinned] = re.findall(r"^numba==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert (pinned, version("numba")) == (CHECKED, CHECKED), UPGRADE
    for ours, hooks in OVERRIDDEN.items():
        [theirs] = ours.__bases__
        own = {name for name in vars(ours) if not name.startswith(("__", "_abc"))}
        assert own == hooks, f"list every hook that {ours.__name__} overrides in OVERRIDDEN"
        assert all(hasattr(theirs, hook) for hook in hooks), UPGRADE
    with emission.compiling():
        generator = cpu_target.target_context.codegen()
        assert isinstance(generator, emission._Linking), UPGRADE
        assert isinstance(generator.create_library("empty"), emission._Linked), UPGRADE
        assert "create_cfunc_wrapper" in vars(cpu_target.target_context)
    assert type(cpu_target.target_context.codegen()) is JITCPUCodegen, UPGRADE
    assert callable(cpu_target.target_context.create_cfunc_wrapper), UPGRADE
    assert "create_cfunc_wrapper" not in vars(cpu_target.target_context)
    assert JITCPUCodegen._library_class is JITCodeLibrary, UPGRADE
