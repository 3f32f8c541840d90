"""Plans of launches hold themselves to their rules; what breaks one is refused where the plan is made, on any machine."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kgen.backends.shared import MAX_STATIC
from kgen.ir import Broken
from kgen.runtime import maps, rows
from kgen.runtime.limits import limits
from kgen.runtime.rows import RowOperandPlace
from kgen.runtime.verified import verify_map, verify_rows
from tests.cuda.test_cuda_rows import visited
from tests.runtime.plans import draw, split

H200 = limits("sm_90")


def hold(seeds: range) -> None:
    for seed in seeds:
        asked = draw(random.Random(seed))
        try:
            rows.plan(*asked)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {asked}") from error


def test_drawn_plans_of_rows_hold() -> None:
    hold(range(4000))


@pytest.mark.slow
def test_many_drawn_plans_of_rows_hold() -> None:
    hold(range(4000, 104_000))


def test_drawn_plans_read_each_element_once() -> None:
    """As the kernel walks: the rules are about a plan's numbers, this about elements."""
    seen = 0
    for seed in range(100_000, 103_000):
        asked = draw(random.Random(seed))
        made = rows.plan(*asked)
        assert made is not None
        if made.n > 3000 or not any(made.strides[0]) or not asked[1]:
            continue
        seen += 1
        for row in {0, made.rows // 2, made.rows - 1}:
            base, rest = 0, row
            for d in reversed(range(len(made.row_sizes))):
                base += rest % made.row_sizes[d] * made.row_strides[0][d]
                rest //= made.row_sizes[d]
            wanted = [base]
            for n, step in zip(made.sizes, made.strides[0], strict=True):
                wanted = [at + i * step for at in wanted for i in range(n)]
            # `visited` goes by the first operand, whose layout need not be the one that decides
            if made.steps[0][0].main == 0:
                assert sorted(visited(made, row)) == sorted(wanted), seed
    assert seen > 500


def test_drawn_plans_of_elements_hold() -> None:
    for seed in range(3000):
        rng = random.Random(seed)
        sizes = split(rng, int(2 ** rng.uniform(0, 33)))
        strides, itemsizes, addresses = [], [], []
        for _ in range(rng.randint(1, 5)):
            own, step, order = [0] * len(sizes), 1, list(range(len(sizes)))
            if rng.random() < 0.2:
                rng.shuffle(order)
            for d in reversed(order):
                own[d] = step if rng.random() < 0.9 else 0
                step *= sizes[d] + rng.choice((0, 0, 0, 1, 8))
            strides.append(own)
            itemsizes.append(rng.choice((0, 1, 2, 4, 8)))
            addresses.append(rng.randrange(0, 16, itemsizes[-1]) if itemsizes[-1] and rng.random() < 0.3 else 0)
        maps.plan(sizes, strides, itemsizes, addresses)


def test_there_is_no_cluster_of_one() -> None:
    """silu(g) * x normed, its gradients: four 16-bit operands held, 13,313 to 16,384 elements; and other mixes of 8 and 16 bytes."""
    for held in ([2] * 4, [4] * 2, [4, 2, 2], [8], [8, 8], [4] * 4, [2] * 8):
        for n in (*range(1000, 40_000, 700), 13_312, 13_313, 16_000, 16_384, 16_385):
            operands = tuple(RowOperandPlace((n,), (1,), b, 0, True, True, True, 1) for b in held)
            made = rows.plan((5,), (n,), operands, 0, 2, True, 8, H200, True)
            assert made is not None and (not made.steps[0][0].cluster or 2 <= made.segments <= 16)


def test_kernels_declare_no_more_shared_memory_than_they_may() -> None:
    """Sixty sums of f64 in one reading, and sixteen readings of five: ptxas refused both."""
    for reductions, words, strides in ((1, 120, ((1,), (1000,))), (16, 20, ((40_000,), (1,)))):
        x = RowOperandPlace(*strides, 8, 0, True, True, True, 1)
        made = rows.plan((1000,), (40_000,), (x,), 0, reductions, True, words, H200, True)
        assert made is not None
        team = made.steps[0][0]
        declared = rows.Team(team.threads, team.blocks, team.team, team.vectors, team.keep, across=team.across, cluster=int(team.cluster))
        assert declared.static(words, reductions) <= MAX_STATIC


def test_devices_with_less_shared_memory_or_no_clusters_get_plans_of_their_own() -> None:
    for arch in ("sm_75", "sm_80", "sm_86", "sm_120"):
        x = RowOperandPlace((49_152,), (1,), 2, 0, True, True, True, 1)
        made = rows.plan((5,), (49_152,), (x,), 0, 2, True, 8, limits(arch), True)
        assert made is not None and made.shared <= limits(arch).shared and (limits(arch).cluster or not made.steps[0][0].cluster)


# --------------------------------------------------------------------------------------------------- what breaks a rule


def held(n: int = 80_000) -> tuple[rows.RowPlan, tuple[RowOperandPlace, ...]]:
    operands = (RowOperandPlace((n,), (1,), 2, 0, True, True, True, 1), RowOperandPlace((n,), (1,), 2, 0, True, False, False, 1))
    made = rows.plan((5,), (n,), operands, 0, 2, True, 4, H200, True)
    assert made is not None
    return made, operands


def walking(plan: rows.RowPlan, **how: object) -> rows.RowPlan:
    return replace(plan, steps=tuple((w._replace(**how), g) for w, g in plan.steps))


def test_a_plan_that_breaks_a_rule_is_refused() -> None:
    cluster, operands = held()
    split_up, _ = held(2**23)
    whole, _ = held(4096)
    assert cluster.steps[0][0].cluster and len(split_up.steps) == 5 and not whole.steps[0][0].segments
    broken = {
        "a cluster has at least two blocks": replace(cluster, segments=1, span=cluster.n),
        "no more than the device allows": replace(cluster, segments=17),
        "the device has": replace(cluster, shared=230 * 1024),
        "shared memory that they take": replace(cluster, shared=cluster.shared - 16),
        "segments have all vectors": replace(cluster, span=cluster.span - 32),
        "no segment is empty": replace(cluster, segments=cluster.segments + 1),
        "a team takes all vectors": walking(whole, vectors=1),
        "a power of two": walking(replace(whole, threads=96), threads=96, team=96),
        "is a block": walking(whole, team=64),
        "room for the blocks": walking(whole, blocks=33),
        "for each group of rows": replace(whole, steps=((whole.steps[0][0], 4),)),
        "a launch for each reading": replace(split_up, steps=split_up.steps[:4]),
        "walk it alike": replace(split_up, steps=(split_up.steps[0], (split_up.steps[1][0]._replace(vectors=2), split_up.steps[1][1]), *split_up.steps[2:])),
        "walks it in the same vectors": replace(split_up, steps=(*split_up.steps[:4], (split_up.steps[4][0]._replace(vec=4), split_up.steps[4][1]))),
        "as many blocks that store it": replace(split_up, steps=(*split_up.steps[:4], (split_up.steps[4][0], split_up.steps[4][1] + 1))),
        "have work space": replace(split_up, work=0),
        "an index has the bits": replace(whole, row_strides=((2**31,), (2**31,))),
        "aligned alike": replace(whole, row_strides=((4096,), (4097,))),
        "neighbours": replace(whole, strides=((1,), (2,))),
        "whole vectors": replace(whole, n=4095, sizes=(4095,)),
        "merged dims have all elements": replace(whole, n=4088),
        "begin where": replace(whole, misaligned=1),
        "a row begins with a vector": replace(whole, row_strides=((4097,), (4097,))),
    }
    for rule, plan in broken.items():
        with pytest.raises(Broken, match=rule):
            verify_rows(plan, operands, 1024, H200, 2, True, True)
    with pytest.raises(Broken, match="where no launch reads"):
        verify_rows(split_up, operands, 1024, H200, 2, True, False)
    with pytest.raises(Broken, match="shared memory"):
        verify_rows(cluster, operands, MAX_STATIC + 4, H200, 2, True, True)
    for plan in (cluster, split_up, whole):
        verify_rows(plan, operands, 1024, H200, 2, True, True)


def test_a_plan_of_elements_that_breaks_a_rule_is_refused() -> None:
    given = ([6, 64], [[64, 1], [1, 0], [64, 1]], [2, 2, 2], [0, 0, 0])
    made = maps.plan(*given)
    assert made is not None
    for rule, plan in {
        "all elements": replace(made, n=383),
        "end where": replace(made, strides=((65, 1), *made.strides[1:])),
        "16 bytes": replace(made, variant=made.variant._replace(vec=16)),
        "stands still": replace(made, variant=made.variant._replace(splat=0)),
    }.items():
        with pytest.raises(Broken, match=rule):
            verify_map(plan, *given)
    with pytest.raises(Broken, match="aligned"):
        verify_map(made, *given[:3], [2, 0, 0])
