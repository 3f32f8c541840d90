"""Static CUDA files: their host function and kernels run on the CPU, each thread a fiber; NVRTC and nvcc take them."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import pytest
import torch

from kgen.backends import devices
from kgen.runtime import driver, nvrtc
from tests import static_files as files
from tests.cuda.emulated import ASM, SHIM, built
from tests.programs import PROGRAMS

HOST = r"""
#undef __CUDACC_RTC__
using std::rint;
using std::fabs;
typedef int cudaError_t;
typedef void* cudaStream_t;
static const int cudaSuccess = 0, cudaErrorInvalidValue = 1;
static int cudaGetLastError() { return 0; }
template <typename T> static int cudaMallocAsync(T** p, size_t bytes, cudaStream_t) { *p = (T*)malloc(bytes); return 0; }
static int cudaFreeAsync(void* p, cudaStream_t) { free(p); return 0; }
static float __shfl_xor_sync(unsigned m, float x, int apart) { return __uint_as_float(__shfl_xor_sync(m, __float_as_uint(x), apart)); }
static unsigned __shfl_xor_sync(unsigned m, bool x, int apart) { return __shfl_xor_sync(m, unsigned(x), apart); }
static long long __shfl_xor_sync(unsigned m, long long x, int apart) {
    const unsigned low = __shfl_xor_sync(m, unsigned(x), apart), high = __shfl_xor_sync(m, unsigned(x >> 32), apart);
    return (long long)((unsigned long long)high << 32 | low);
}
static double __shfl_xor_sync(unsigned m, double x, int apart) {
    long long i = __shfl_xor_sync(m, __double_as_longlong(x), apart);
    memcpy(&x, &i, 8);
    return x;
}
static float __shfl_up_sync(unsigned m, float x, int by) { return __uint_as_float(__shfl_up_sync(m, __float_as_uint(x), unsigned(by))); }
static long long __shfl_up_sync(unsigned m, long long x, int by) {
    const unsigned low = __shfl_up_sync(m, unsigned(x), unsigned(by)), high = __shfl_up_sync(m, unsigned(x >> 32), unsigned(by));
    return (long long)((unsigned long long)high << 32 | low);
}
static double __shfl_up_sync(unsigned m, double x, int by) {
    long long i = __shfl_up_sync(m, __double_as_longlong(x), by);
    memcpy(&x, &i, 8);
    return x;
}
template <typename F> static void emulate(unsigned grid, unsigned threads, F f) {
    body = [](void* c) { (*static_cast<F*>(c))(); };
    body_data = &f;
    if (!launched(grid, threads)) abort();
}
"""
ROUNDED = "{ unsigned u = __float_as_uint(x); bits = x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16; }"
SPECS: tuple[tuple[str, str, dict[str, int], bool], ...] = (
    ("softmax", "f32", {"N": 77}, False),
    ("softmax", "bf16", {"N": 4096}, True),
    ("softmax", "f32", {"N": 70_000}, False),
    ("softmax", "bf16", {"N": 300_000}, False),
    ("layernorm", "f32", {"N": 1001}, False),
    ("layernorm", "bf16", {"N": 768}, True),
    ("rmsnorm", "bf16", {"N": 40}, True),
    ("cross_entropy", "bf16", {"V": 1000}, True),
    ("cross_entropy", "f32", {"V": 150_000}, False),
    ("gelu", "bf16", {}, True),
    ("gelu", "f64", {}, False),
    ("adamw", "bf16", {}, False),
    ("argmax", "f32", {"N": 33}, False),
    ("argmax", "f64", {"N": 10_000}, False),
    ("groupnorm", "f32", {"B": 2, "G": 3, "C": 4, "S": 8}, False),
    ("batchnorm_stats", "f32", {"B": 3, "C": 5, "S": 16}, False),
    ("sum_of_squares_cols", "f32", {"M": 3000, "N": 70}, False),
    ("row_absmax_int8", "f32", {"N": 512}, False),
    ("bias_gelu", "bf16", {"N": 41}, False),
    ("forth", "bf16", {"N": 2104}, False),
    ("back", "f64", {"N": 300}, False),
    ("shares", "f32", {"N": 77}, False),
    ("upright", "bf16", {"M": 2100, "N": 40}, False),
)


def emulated(path: Path) -> ctypes.CDLL:
    """A file's host function, its kernels run on the CPU."""
    source = path.read_text()
    for pattern, made in ASM:
        source = re.sub(pattern, made, source, flags=re.S)
    source = re.sub(r'asm\("cvt\.rn\.bf16\.f32 %0, %1;" : "=h"\(bits\) : "f"\(x\)\);', ROUNDED, source)
    source = re.sub(r"(\w+)<<<unsigned\((.*?)\), (\d+), 0, stream>>>\((.*?)\);", r"emulate(unsigned(\2), \3, [&] { \1(\4); });", source, flags=re.S)
    return built(path.with_name(f"{path.stem}_emulated.cpp"), source, SHIM + HOST)


@pytest.mark.parametrize(("name", "dtype", "sizes", "backward"), SPECS)
def test_files_hold_the_bound_on_the_cpu(name: str, dtype: str, sizes: dict[str, int], backward: bool, tmp_path: Path) -> None:
    lead = (5,) if sizes.get("N", 0) < 1000 else (2,)
    lead = (1, 2345) if name in ("gelu", "adamw") else lead
    written = files.compiled(name, "cuda", tmp_path, dtype, sizes, backward)
    for kernel in files.kernels(name, backward):
        kernel = files.concrete(kernel, dtype)
        library = emulated(written[kernel.name])
        given = files.arguments(kernel, sizes, lead)
        before = {n: x.clone() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
        made = files.results(kernel, given, sizes, lead)
        assert files.called_as_c(library[kernel.name], kernel, given, made, files.count_of(kernel, lead), None) == 0
        files.holds(kernel, before, made, "cuda")


@pytest.mark.parametrize(("name", "sizes", "rows"), [("rmsnorm", {"N": 300}, 40), ("layernorm", {"N": 40}, 41)])
def test_a_block_takes_rows_one_after_the_other(name: str, sizes: dict[str, int], rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one pass with the sums of their columns, which join those in the work space after 16 rows: here one block takes them all."""
    monkeypatch.setattr(devices, "resident", lambda arch, blocks, cluster: 1)
    path = files.compiled(name, "cuda", tmp_path, "f32", sizes, True)[f"{name}_backward"]
    source = path.read_text()
    assert re.findall(r"__global__ .*?\) (\w+)\(", source) == [f"{name}_backward_kernel", f"{name}_backward_columns_kernel"]
    kernel = files.concrete(files.kernels(name, True)[-1], "f32")
    given = files.arguments(kernel, sizes, (rows,))
    made = files.results(kernel, given, sizes, (rows,))
    assert files.called_as_c(emulated(path)[kernel.name], kernel, given, made, rows, None) == 0
    files.holds(kernel, given, made, "cuda")


def test_sums_over_no_rows_are_results(tmp_path: Path) -> None:
    """Of no rows a weight's gradient is 0, not what lay there; rows that a launch has no blocks for are refused."""
    sizes = {"N": 40}
    path = files.compiled("layernorm", "cuda", tmp_path, "f32", sizes, True)["layernorm_backward"]
    kernel = files.concrete(files.kernels("layernorm", True)[-1], "f32")
    given = files.arguments(kernel, sizes, (0,))
    made = {n: x.fill_(7) for n, x in files.results(kernel, given, sizes, (0,)).items()}
    function = emulated(path)[kernel.name]
    assert files.called_as_c(function, kernel, given, made, 0, None) == 0
    assert not made["dw"].any() and not made["db"].any() and made["dw"].numel() == 40
    assert files.called_as_c(function, kernel, given, made, 2**36, None) == 1


def test_weighted_sums_about_a_maximum_hold_the_bound(tmp_path: Path) -> None:
    """Rows that are read anew, with what the table of monoids has about a maximum: sums of exponentials, weighted ones, an entropy's."""
    text, sizes, lead = PROGRAMS["weighted sums about a maximum"], {"N": 70_000}, (2,)
    (written,) = files.compiled(text, "cuda", tmp_path, "f32", sizes).values()
    kernel = files.concrete(files.kernels(text, False)[0], "f32")
    given = files.arguments(kernel, sizes, lead)
    made = files.results(kernel, given, sizes, lead)
    assert files.called_as_c(emulated(written)[kernel.name], kernel, given, made, files.count_of(kernel, lead), None) == 0
    files.holds(kernel, given, made, "cuda")
    assert "descent(" in written.read_text() and "carried(" in written.read_text()


@pytest.mark.parametrize(("name", "dtype", "sizes"), [(n, d, s) for n, d, s, b in SPECS if not b] + [("softmax", "f16", {"N": 4096})])
def test_nvrtc_takes_the_kernels(name: str, dtype: str, sizes: dict[str, int], tmp_path: Path) -> None:
    if not driver.available():
        pytest.skip("NVRTC is not there")
    source = files.compiled(name, "cuda", tmp_path, dtype, sizes)[name].read_text()
    kernels = re.findall(r"__global__ .*? (\w+_kernel)\(", source)
    cubin, _ = driver.compile_cubin(source, kernels, "sm_90", nvrtc.OPTIONS)
    assert kernels and cubin


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", ["softmax", "gelu", "rmsnorm"])
def test_nvcc_builds_whole_files(name: str, tmp_path: Path) -> None:
    """By the line in their heads, from a folder with nothing else."""
    made = files.compiled(name, "cuda", tmp_path, "bf16", {"N": 4096} if name != "gelu" else {}, name == "rmsnorm")
    path = made[f"{name}{'_backward' * (name == 'rmsnorm')}"]
    assert not [p.name for p in path.parent.iterdir() if p.suffix != ".cu"]
    files.built(path, "nvcc")


def test_a_file_says_where_its_launches_differ(tmp_path: Path) -> None:
    path = files.compiled("softmax", "cuda", tmp_path, "bf16", {"N": 300_000})["softmax"]
    assert "each reading fetches them anew" in path.read_text()


