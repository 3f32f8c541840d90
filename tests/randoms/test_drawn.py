"""Seeds that a call leaves out come from torch's generator, and behave as those of torch's own dropout do."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import kgen
from kgen.errors import KgenError
from tests.randoms.philox import stream

pytestmark = pytest.mark.usefixtures("built_quickly_by_default")

P = 0.25
SCALE = torch.tensor(1 / (1 - P))


@pytest.fixture(scope="module")
def dropout() -> kgen.Kernel:
    return kgen.load("random/dropout")


def kept(shape: tuple[int, ...], p: float, seed: int, offset: int) -> torch.Tensor:
    """The mask of the bundled dropout: a number of 24 bits below 1 - p."""
    return (stream(shape, seed, offset) >> 8).float() * 2.0**-24 < torch.tensor(1 - p)


def test_a_mask_follows_from_seed_and_offset(dropout: kgen.Kernel) -> None:
    x = torch.randn(3, 5, 8)
    seed, offset = torch.tensor(7), torch.tensor(-1)
    y = dropout(x, P, seed, offset)
    assert torch.equal(y, torch.where(kept((3, 5, 8), P, 7, -1), x * SCALE, 0))
    assert torch.equal(dropout(x, P, 7, offset=2**64 - 1), y)  # ints, of 64 bits with a sign or without
    assert torch.equal(dropout(x, P, seed=seed, offset=offset), y) and not torch.equal(dropout(x, P, seed, seed), y)


def test_the_generator_says_what_is_drawn(dropout: kgen.Kernel) -> None:
    x = torch.ones(64, 64)
    torch.manual_seed(0)
    first, second = dropout(x, P), dropout(x, P)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(dropout(x, p=P), first) and torch.equal(dropout(x, P, None, None), second)
    with torch.random.fork_rng():
        third = dropout(x, P)
    assert torch.equal(dropout(x, P), third)
    torch.manual_seed(0)
    seed, offset = torch.randint(-(2**63), 2**63 - 1, ()), torch.randint(-(2**63), 2**63 - 1, ())
    assert torch.equal(dropout(x, P, seed, offset), first)


def test_the_backward_makes_the_same_mask(dropout: kgen.Kernel) -> None:
    x = torch.randn(2, 7, 9, requires_grad=True)
    y = dropout(x, P)
    dy = torch.randn_like(y)
    y.backward(dy)
    mask = y != 0
    assert torch.equal(x.grad, torch.where(mask, dy * SCALE, 0)) and 0 < mask.sum() < mask.numel()
    x.grad = None
    turned = dy.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    torch.manual_seed(3)
    y = dropout(x.mT, P)  # elements are numbered in the value, not in memory
    y.backward(turned.mT)
    assert torch.equal(x.grad.mT, torch.where(y != 0, turned.mT * SCALE, 0))


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_and_everything_is_dropped(dropout: kgen.Kernel, p: float) -> None:
    x = torch.randn(5, 6, requires_grad=True)
    y = dropout(x, p)
    y.sum().backward()
    assert torch.equal(y, x * (1 - p)) and torch.equal(x.grad, torch.full_like(x, 1 - p))


def test_checkpointing_replays_the_mask(dropout: kgen.Kernel) -> None:
    x = torch.randn(8, 16, requires_grad=True)
    torch.manual_seed(5)
    y = checkpoint(lambda x: dropout(x * 2, P).sin(), x, use_reentrant=False)
    y.sum().backward()
    torch.manual_seed(5)
    z = x.detach().clone().requires_grad_()
    w = dropout(z * 2, P).sin()
    w.sum().backward()
    assert torch.equal(y, w) and torch.equal(x.grad, z.grad)


def test_dropout_add_rmsnorm_has_the_gradients_of_its_mask() -> None:
    kernel = kgen.load("random/dropout_add_rmsnorm")
    x, r = (torch.randn(3, 10, dtype=torch.float64, requires_grad=True) for _ in range(2))
    w = torch.randn(10, dtype=torch.float64, requires_grad=True)
    seed, offset = torch.tensor(11), torch.tensor(4)
    assert torch.autograd.gradcheck(lambda x, r, w: kernel(x, r, w, 0.3, 1e-3, seed, offset, target="torch"), (x, r, w))
    h = kernel(x, r, w, 0.3, 1e-3, seed, offset, target="torch")[1]
    mask = kept((3, 10), 0.3, 11, 4)
    torch.testing.assert_close(h, r + torch.where(mask, x / 0.7, 0))


def test_the_backward_saves_no_mask() -> None:
    kernel = kgen.load("random/dropout_add_rmsnorm")
    x, r = (torch.randn(64, 128, requires_grad=True) for _ in range(2))
    seen: list[tuple[int, ...]] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(tuple(t.shape)), t)[1], lambda t: t):
        kernel(x, r)
    assert sorted(seen) == [(), (), (64,), (64, 128), (64, 128)]  # seed, offset, rsqrt; x and residual


def test_vmap_draws_as_it_is_told(dropout: kgen.Kernel) -> None:
    x = torch.ones(4, 3, 16)
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(lambda x: dropout(x, P))(x)
    y = torch.vmap(lambda x: dropout(x, P), randomness="same")(x)
    assert all(torch.equal(y[0], part) for part in y) and 0 < (y != 0).sum() < y.numel()
    y = torch.vmap(lambda x: dropout(x, P), randomness="different")(x)
    assert len({tuple(part.flatten().tolist()) for part in y}) == 4
    seed, offset = torch.tensor(1), torch.tensor(2)
    one = dropout(x[0], P, seed, offset)
    y = torch.vmap(lambda x: dropout(x, P, seed, offset))(x)
    assert all(torch.equal(one, part) for part in y)
    seeds = torch.arange(4)
    y = torch.vmap(lambda x, s: dropout(x, P, s, offset))(x, seeds)
    assert all(torch.equal(dropout(x[k], P, s, offset), y[k]) for k, s in enumerate(seeds))


def test_torch_func_differentiates_what_was_drawn(dropout: kgen.Kernel) -> None:
    x, seed, offset = torch.randn(6, 8), torch.tensor(3), torch.tensor(0)
    g = torch.func.grad(lambda x: dropout(x, P, seed, offset).sum())(x)
    assert torch.equal(g, kept((6, 8), P, 3, 0) * SCALE)
    _, t = torch.func.jvp(lambda x: dropout(x, P, seed, offset), (x,), (torch.ones_like(x),))
    assert torch.equal(t, g)


def test_a_compiled_function_draws(dropout: kgen.Kernel) -> None:
    compiled = torch.compile(lambda x: dropout(x, P) * 2, backend="aot_eager", fullgraph=True)
    x = torch.ones(16, 16, requires_grad=True)
    torch.manual_seed(1)
    first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second) and 0 < (first != 0).sum() < first.numel()
    torch.manual_seed(1)
    assert torch.equal(compiled(x), first)
    first.sum().backward()
    assert torch.equal(x.grad != 0, first != 0)


def test_lists_have_a_mask_for_each_tensor(dropout: kgen.Kernel) -> None:
    xs = [torch.ones(40, 5) for _ in range(3)]
    torch.manual_seed(2)
    ys = dropout.foreach(xs, P)
    torch.manual_seed(2)
    seeds = [torch.randint(-(2**63), 2**63 - 1, (3,)) for _ in range(2)]
    assert all(torch.equal(y, dropout(x, P, s, o)) for y, x, s, o in zip(ys, xs, *seeds, strict=True))
    assert not torch.equal(ys[0], ys[1])


def test_a_module_draws(dropout: kgen.Kernel) -> None:
    layer = dropout.module(p=P)
    torch.manual_seed(0)
    y = layer(torch.ones(9, 9))
    torch.manual_seed(0)
    assert torch.equal(dropout(torch.ones(9, 9), P), y)


@pytest.mark.parametrize("declared", ["seed: int = random", "seed: f32[] = random", "seed: i64[N] = random"])
def test_only_seeds_are_drawn(declared: str) -> None:
    with pytest.raises(KgenError, match=r"`seed` cannot be drawn[\s\S]*seed: i64\[\] = random") as error:
        kgen.loads(f"f(x: T[..., N], {declared}) -> y: T[..., N]\n\ny = x * uniform[..., N](3, 0) + 0 * seed\n")
    assert ("which a CUDA graph repeats" in str(error.value)) == ("int" in declared)


@pytest.mark.parametrize(("seed", "said"), [(2**64, "seed is 18446744073709551616, which has more than 64 bits"), (1.5, "may be an int")])
def test_a_seed_is_64_bits(dropout: kgen.Kernel, seed: float, said: str) -> None:
    with pytest.raises(KgenError, match=said):
        dropout(torch.ones(2, 3), P, seed, 0)
    assert torch.equal(dropout(torch.ones(2, 3), P, 2**64 - 1, 0), dropout(torch.ones(2, 3), P, -1, 0))


def test_positions_of_leading_dims_need_some() -> None:
    with pytest.raises(KgenError, match="no parameter has leading dims"):
        kgen.loads("f(x: T[N], seed: int) -> y: T[N]\n\ny = x * uniform[..., N](seed, 0)\n")


def test_a_stochastic_rounding_has_the_mean_of_what_it_rounds() -> None:
    x = torch.full((1 << 16,), 1 + 3 / 1024)  # 3/8 of the way from 1 to the next bf16
    y = kgen.load("stochastic_round")(x, torch.tensor(1), torch.tensor(0)).float()
    assert {*y.tolist()} == {1.0, 1.0078125}
    share = (y > 1).double().mean().item()
    assert abs(share - 0.375) < 6 * (0.375 * 0.625 / len(x)) ** 0.5
