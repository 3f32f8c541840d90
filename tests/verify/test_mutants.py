"""Mutants, cheats and kernels that are right: a handful of what `python -m tests.verify.mutants`, `.cheated` and `.correct` go through."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kgen.verify import examine
from tests.verify import cheats, kernelbench, mutants, mutate
from tests.verify.mutate import HERE, Mutant, Source
from tests.verify.rules import RULES

#: Mutants of sources that need no compiler: a rule's first place in a candidate by hand.
QUICK = {
    "no wider dtype": "torch_softmax",
    "the least for the greatest": "loops_argmax",
    "subnormals of the result flushed": "torch_causal_softmax",
    "wrong dim": "torch_rmsnorm",
    "another default of eps": "torch_l2_normalize",
    "a mask by product": "torch_jsd",
    "another shape": "torch_variance",
    "cut for rounded": "loops_group_int8",
}
CHEATS = ("remembered_by_first_elements", "uniform", "patches_comparisons", "by_the_next_call", "works_in_its_argument", "calls_torch")


@pytest.fixture(autouse=True)
def found_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[1]))


def by_hand(name: str) -> Source:
    return next(s for s in mutate.by_hand() if s.name == f"hand/{name}")


def mutant(source: Source, rule: str) -> Mutant:
    return mutate.mutants(source, tuple(r for r in RULES if r.name == rule))[0]


def test_there_are_rules_and_sources_enough() -> None:
    assert len(RULES) >= 60 and len({r.name for r in RULES}) == len(RULES)
    assert len(mutate.by_hand()) >= 15 and len(mutate.WRITTEN) >= 30
    assert len(cheats.CHEATS) >= 20


def test_every_rule_of_a_cpu_changes_some_source_by_hand_or_written() -> None:
    texts = [*mutate.by_hand(), *(mutate.written(spec) for spec in ("softmax", "layernorm", "adamw", "cumsum", "elu", "gelu_tanh", "kl_div", "rope"))]
    missing = []
    for rule in RULES:
        languages = set(rule.edits) & {"c++", "torch", "python"}
        edits = [e for language in languages for e in rule.edits[language]]
        if edits and not any("f16" in e.needs for e in edits) and not any(mutate.mutants(s, (rule,)) for s in texts):
            missing.append(rule.name)
    assert not missing


def test_a_mutant_differs_in_its_place_alone_and_not_in_words() -> None:
    source = by_hand("torch_softmax")
    for m in mutate.mutants(source):
        assert m.text != source.text and m.line in source.text
        assert m.text.splitlines()[0] == source.text.splitlines()[0]  # the docstring


@pytest.mark.parametrize("rule", QUICK)
def test_a_mutant_is_found(rule: str, tmp_path: Path) -> None:
    source = by_hand(QUICK[rule])
    row = mutants.judge(source.put(tmp_path, mutant(source, rule).text), source.spec, mutants.options(source))
    assert row["verdict"] == "found", row


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_found(name: str) -> None:
    report = examine(f"{HERE / 'cheats.py'}:{name}", "softmax", shrink=0.0, device="cpu", **cheats.HELD.get(name, {}))
    assert report.findings and not report.ok


@pytest.mark.parametrize("name", ["torch_cross_entropy", "loops_group_int8", "cpp_argmax"])
def test_what_is_right_raises_no_alarm(name: str, tmp_path: Path) -> None:
    source = by_hand(name)
    report = examine(source.put(tmp_path), source.spec, shrink=0.0, examples=10, **mutants.options(source))
    assert report.ok, report


def test_allclose_sees_what_is_far_off_and_no_more(tmp_path: Path) -> None:
    source = by_hand("torch_softmax")
    right, off = tmp_path / "right", tmp_path / "off"
    right.mkdir()
    off.mkdir()
    assert kernelbench.refused(source.put(right), "softmax", ("f32",)) == ""
    assert kernelbench.refused(source.put(off, mutant(source, "wrong dim").text), "softmax", ("f32",))
    nan = source.put(off, mutant(source, "no shift by the maximum").text)
    assert kernelbench.refused(nan, "softmax", ("f32",)) == ""  # normal numbers do not overflow
    assert mutants.judge(nan, "softmax", mutants.options(source))["verdict"] == "found"


def test_each_equivalent_mutant_has_a_reason_and_a_place() -> None:
    names = {r.name for r in RULES}
    for known in mutants.reasons():
        assert known["rule"] in names or not known["rule"], known
        assert len(known["reason"]) > 20 and re.compile(known["source"])
    for entry in json.loads((HERE / "known.json").read_text()):
        assert entry["kind"] and entry["name"] and len(entry["reason"]) > 20 and "finding" in entry


def test_the_head_of_a_file_names_the_file_that_is_written() -> None:
    """A kernel's function may be called otherwise than its file: `relu` is a function of the file's own."""
    for target in ("cpp", "cuda"):
        mutate.WRITTEN.setdefault("relu", "f32")
        source = mutate.written("relu", target)
        assert source.stem == "relu" and f"-shared relu{source.suffix} -o relu.so" in source.text
