"""Bugs that were found by random programs and by hand, each with the least kernel that shows it."""

import copy
import math
import os
import pickle
import re
import signal

import pytest
import torch

import kgen

pytestmark = pytest.mark.usefixtures("built_quickly")


def run(spec, *args, **kwargs):
    return kgen.loads(spec)(*args, **kwargs)


def test_passes_find_parameters_as_they_were_given():
    p, q = torch.zeros(4), torch.zeros(3)
    y = run("k(p: f32[N], q: f32[M]) -> (p': f32[N], q': f32[M], y: f32[M, N])\np' = p + 1\nq' = q + 1\ny = q + p\n", p, q)
    assert y.abs().sum() == 0 and p.sum() == 4 and q.sum() == 3


def test_states_of_permuted_dims_are_written_in_one_pass():
    p, q = torch.randn(3, 5), torch.randn(5, 3)
    p0, q0 = p.clone(), q.clone()
    y = run("k(p: f32[M, N], q: f32[N, M]) -> (p': f32[M, N], q': f32[N, M], y: f32[N, M])\np' = p + q\nq' = q - p\ny = p * 2\n", p, q)
    assert torch.equal(p, p0 + q0.T) and torch.equal(q, q0 - p0.T) and torch.equal(y, 2 * p0.T)


def test_out_is_no_operand_of_another_pass():
    a = torch.arange(3.0)
    with pytest.raises(kgen.KgenError, match="out overlaps x"):
        run("k(x: f32[N], z: f32[M]) -> (y: f32[N], w: f32[M, N])\ny = 2*x\nw = x + z\n", a, torch.zeros(2), out=(a, torch.empty(2, 3)))


def test_spelling_of_several_operators_is_bracketed():
    x, w = torch.tensor([2.0, 3.0]), torch.tensor([4.0, 9.0])
    assert run("k(x: f32[N], w: f32[N]) -> y: f32[N]\ny = x / rsqrt(w)\n", x, w).tolist() == [4.0, 9.0]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_numbers_and_integers_cast_by_name_round_once(dtype):
    ints = torch.tensor([2049, 257, 2**60 + 2**52 + 1, -3], dtype=torch.int64)
    kernel = kgen.loads(f"k(i: i64[N], e: float, v: F[M]) -> (a: f32[N], b: f32[N], c: f32[N], d: F[N], z: F[M])\n"
                        f"a = {dtype}(i)\nb = {dtype}(e) + 0*f32(i)\nc = {dtype}(0.1) + 0*f32(i)\nd = F(i) + F(0.1)*0\nz = v\n")  # fmt: skip
    torch_dtype = torch.float16 if dtype == "f16" else torch.bfloat16
    a, b, c, d, _ = kernel(ints, 0.3, torch.zeros(1, dtype=torch_dtype))
    exact = torch.tensor([2048.0, 256.0, 2.0**60 + 2.0**53, -3.0]) if dtype == "bf16" else torch.tensor([2048.0, 257.0, math.inf, -3.0])
    assert a.tolist() == exact.tolist() and d.float().tolist() == exact.tolist()
    assert b[0] == torch.tensor(0.3, dtype=torch_dtype).float() and c[0] == torch.tensor(0.1, dtype=torch_dtype).float()


def test_literals_and_numbers_saturate_as_tensors_do():
    x = torch.zeros(2, dtype=torch.int16)
    spec = "k(x: i16[N], e: float) -> (a: i16[N], b: i16[N], c: i16[N], d: f32[N])\na = x + i16(1e300)\nb = x + i16(e)\nc = x + i16(-inf)\nd = 1e300 * f32(1 + x)\n"
    a, b, c, d = run(spec, x, 1e9)
    assert (a[0], b[0], c[0], d[0]) == (32767, 32767, -32768, math.inf)


def test_narrow_integers_wrap_between_casts():
    x = torch.tensor([20000], dtype=torch.int16)
    assert run("k(x: i16[N]) -> y: i16[N]\ny = min(i16(x) + i16(x), 5)\n", x).item() == 40000 - 65536


def test_a_dtype_variable_may_occur_in_a_cast_alone():
    y, z = run(
        "k(x: i32[N], v: T[M]) -> (y: f64[N], z: T[M])\ny = T(x)\nz = v\n", torch.tensor([16777217], dtype=torch.int32), torch.zeros(1)
    )
    assert y.item() == 16777216


def test_parameters_may_be_named_out_and_target():
    out, target = torch.ones(2), torch.ones(2)
    assert run("k(out: f32[N], target: f32[N]) -> y: f32[N]\ny = out + target\n", out=out, target=target).tolist() == [2, 2]


def test_square_root_of_minus_infinity_by_power():
    x = torch.full((1024,), -math.inf)
    x[0] = -0.0
    y = run("k(x: f32[N]) -> y: f32[N]\ny = x^0.5\n", x)
    assert y[1] == math.inf and math.copysign(1, y[0].item()) == 1


@pytest.mark.parametrize("name", [
    "INT64_MAX", "__linux__", "W__x", "expf", "__debug__", "index_N",
    *(pytest.param(n, marks=pytest.mark.slow) for n in ("M_PI", "HUGE_VAL", "FP_NAN", "strlen")),
])  # fmt: skip
def test_macros_and_functions_of_c_as_names(name):
    x = torch.ones(3)
    assert (
        run(f"k({name}: f32[N], e: float) -> (y: f32[N], z: f32[N])\nm = {name} * (1 - e)\ny = m + index[N]\nz = m\n", x, 0.5)[1][0] == 0.5
    )
    kernel = kgen.loads(f"{name}(x: f32[N]) -> y: f32[N]\ny = x + 1\n")
    assert kernel(x)[0] == 2
    compile(kernel.source("triton"), "m.py", "exec")
    compile(kgen.loads(f"k(x: f32[N]) -> ({name}: f32[N], z: f32[N])\n{name} = x + index[N]\nz = x\n").source("triton"), "m.py", "exec")


def test_tensors_without_memory_are_refused():
    kernel = kgen.loads("k(x: f32[N]) -> y: f32[N]\ny = x + 1\n")
    freed = torch.zeros(4)
    freed.untyped_storage().resize_(0)
    for call in (
        lambda: kernel(freed),
        lambda: kernel(freed.requires_grad_()),
        lambda: kernel(torch.zeros(2), out=torch.zeros(2).to_sparse()),
    ):
        with pytest.raises(kgen.KgenError, match="memory|dense"):
            call()


def test_negated_views_are_resolved():
    z = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert z.is_neg() and run("k(x: f32[N]) -> y: f32[N]\ny = x * 1\n", z).tolist() == [-2, 4]


def test_kernels_that_ran_are_copied_and_pickled():
    kernel = kgen.loads("k(x: f32[N]) -> y: f32[N]\ny = x + 1\n")
    kernel(torch.zeros(2))
    assert copy.deepcopy(kernel)(torch.zeros(2)).tolist() == pickle.loads(pickle.dumps(kernel))(torch.zeros(2)).tolist() == [1, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_runs_after_a_fork():
    kernel, x = kgen.loads("k(x: f32[N]) -> y: f32[N]\ny = x + 1\n"), torch.zeros(100_000)
    kernel(x)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if kernel(x).sum() == 100_000 else 3)
    assert os.waitpid(child, 0)[1] == 0


def test_a_result_that_is_a_number_keeps_its_name_apart_from_the_number() -> None:
    """Fuzzing on a GPU found `m` declared twice: the number, and the tensor that it is stored in."""
    kernel = kgen.loads("f(x: T[N], p: f32[N], s: float) -> (m: T[N], k: i64[N], p': f32[N], z: f64[])\nm = N * 2\nk = N // 3\np' = s * 2\nz = s + m")
    p = torch.zeros(4)
    m, k, z = kernel(torch.zeros(4), p, 0.5)
    assert m.tolist() == [8.0] * 4 and k.tolist() == [1] * 4 and p.tolist() == [1.0] * 4 and z.item() == 8.5


def test_a_workspace_takes_no_name_of_the_writers() -> None:
    """Fuzzing on a GPU found a result `h_kept` in the place of what a pass keeps of `h`."""
    kernel = kgen.loads("f(x: T[..., N]) -> (h: T[], h_kept: T32[], e: T[..., N])\nh = min[..., N](x)\nh_kept = h + 1\ne = x / sum[N](exp(x - h))")
    names = re.findall(r'^    "(\w+)": \("', kernel.source("triton"), re.M)
    assert len(names) == len(set(names)) == 5 and {"x", "h", "h_kept", "e"} < set(names)
    x = torch.randn(3, 5)
    h, h_kept, e = kernel(x)
    assert h == x.min() and h_kept == h + 1 and torch.allclose(e, x / (x - h).exp().sum(-1, keepdim=True), rtol=1e-5)


def test_tests_of_numbers_ask_the_number() -> None:
    """The host part in C++ took isinf of a float for that of a bool."""
    kernel = kgen.loads("f(x: f32[N], a: float) -> y: f32[N]\ny = x * ((2 if isinf(a) else 1) + (4 if isnan(a) or a > 3 else 0) + (8 if isfinite(a) else 0))")
    for a, want in ((math.inf, 6.0), (math.nan, 5.0), (1.0, 9.0), (5.0, 13.0)):
        assert kernel(torch.ones(3), a).tolist() == [want] * 3


def test_a_literal_just_below_the_overflow_of_f32_has_a_source() -> None:
    for target in ("triton", "cuda", "cpp"):
        assert kgen.loads("f(x: T[N]) -> y: T[N]\ny = x * 340282356779733661637539395458142568447.0").source(target)
