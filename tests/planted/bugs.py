"""Bugs to plant in kgen: of each kind in the list of where generated code goes wrong, one in the code of today.

A bug is a file, a piece of its text that stands there once, and what takes its place; and the tests of the default run that catch it,
the one that says best what is wrong first.  Golden files catch nearly all of these too, but say only that a text is another: none
of the tests here holds source against a kept copy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def bug(name: str, file: str, old: str, new: str, *tests: str) -> Bug:
    return Bug(name, file, old, new, tests)


INTEGERS, TABLE, EMULATED = "tests/ops/test_integers.py::", "tests/ops/test_table.py::", "tests/cuda/test_cuda_emulated.py::"
KERNEL, REWRITE = "tests/runtime/test_kernel.py::", "tests/frontend/test_rewrite.py::"
GRAD, LOWER, SPECS = "tests/grad/test_grad.py::", "tests/frontend/test_lower.py::", "tests/specs/test_reductions.py::"
TRITON, TRITON_ROWS = "tests/triton/test_triton_source.py::", "tests/triton/test_triton_rows.py::"
ROUNDS = "tests/cuda/test_cuda_rounds.py::"
CUDA, CUDA_ROWS = "tests/cuda/test_cuda_source.py::", "tests/cuda/test_cuda_rows.py::"
LAUNCHES = "tests/cuda/test_cuda_launches.py::"
KINDS = "tests/planted/test_kinds.py::"
INTERPRETED = TRITON_ROWS + "test_host_functions_and_rows_under_the_interpreter"

BUGS = (
    # ------------------------------------------------------------------------------------------------------------- C++
    bug("max drops NaN (C++)", "templates/cpp/functions/maximum.cpp", "a > b || a != a ? a : b", "a > b ? a : b",
        KINDS + "test_special_values_go_through_on_cpp"),
    bug("min drops NaN (C++)", "templates/cpp/functions/minimum.cpp", "a < b ? a : a == a ? b : a", "b < a ? b : a",
        KINDS + "test_special_values_go_through_on_cpp"),
    bug("relu drops NaN and -0.0 (C++)", "templates/cpp/functions/relu.cpp", "return x < 0 ? T(0) : x;", "return x > 0 ? x : T(0);",
        KINDS + "test_special_values_go_through_on_cpp"),
    bug("the remainder has the dividend's sign (C++)", "templates/cpp/functions/floor_mod.cpp",
        "return r != 0 && (y < 0) != (r < 0) ? r + y : r;", "return r;", KINDS + "test_special_values_go_through_on_cpp"),
    bug("integer division truncates (C++)", "templates/cpp/functions/floor_divide.cpp", "return q - (r != 0 && (r < 0) != (y < 0));", "return q;",
        INTEGERS + "test_integer_operators_are_pythons_wrapped_to_the_width[i8]"),
    bug("a shift by the width or more is not guarded (C++)", "templates/cpp/functions/shift_left.cpp", "n < 0 || n >= W ? T(0) : T(u)", "T(u)",
        INTEGERS + "test_integer_operators_are_pythons_wrapped_to_the_width[i8]"),
    bug("a cast to integer does not saturate (C++)", "templates/cpp/functions/saturate.cpp", "return x >= end ? high : x <= F(low) ? low : y;",
        "return y;", INTEGERS + "test_casts_saturate_from_floats_wrap_between_integers_and_compare_with_zero_to_bool[f32]"),
    bug("bf16 is cut, not rounded (C++)", "templates/cpp/floats.cpp.jinja", "(u + 0x7fff + (u >> 16 & 1)) >> 16", "u >> 16",
        KINDS + "test_sixteen_bit_results_are_rounded_once_on_cpp"),
    bug("f64 is rounded to f16 by way of f32 (C++)", "templates/cpp/floats.cpp.jinja", "double(r) == x || !(std::fabs(r) <= 3.4028234e38f) ? r : ",
        "true ? r : ", KINDS + "test_sixteen_bit_results_are_rounded_once_on_cpp"),
    bug("the last tile of a map is left out (C++)", "templates/cpp/map.cpp.jinja", "(loop.numel + TILE - 1) / TILE", "loop.numel / TILE",
        KINDS + "test_every_element_is_computed_whatever_the_strides_on_cpp"),
    bug("the last element of a map is left out (C++)", "templates/cpp/map.cpp.jinja", "loop.numel - begin < TILE ? loop.numel - begin : TILE",
        "loop.numel - begin < TILE ? loop.numel - begin - 1 : TILE", KINDS + "test_every_element_is_computed_whatever_the_strides_on_cpp"),
    bug("operands are read by the result's strides (C++)", "templates/cpp/loop.cpp.jinja", "offset += at[d] * stride[k][d];",
        "offset += at[d] * stride[K - 1][d];", KINDS + "test_every_element_is_computed_whatever_the_strides_on_cpp"),
    bug("mask of a row's end off by one (C++)", "templates/cpp/rows.cpp.jinja", "l < left ?", "l <= left ?",
        KINDS + "test_rows_of_every_length_on_cpp"),
    bug("the last of equals wins an argmax (C++)", "templates/cpp/rows.cpp.jinja", "(equal & (place_b < place_a))", "(equal & (place_b > place_a))",
        KINDS + "test_rows_of_every_length_on_cpp"),
    bug("argmax passes NaN by (C++)", "templates/cpp/rows.cpp.jinja", "| (nan_b & !nan_a) |", "|",
        KINDS + "test_rows_of_every_length_on_cpp"),
    bug("a segment of a long row is left out (C++)", "templates/cpp/rows.cpp.jinja", "s + w < segments; s += 2 * w", "s + w < segments - 1; s += 2 * w",
        KINDS + "test_rows_of_every_length_on_cpp"),
    bug("sums contract to fma (C++)", "kgen/runtime/build.py", '"-ffp-contract=off"', '"-ffp-contract=fast"',
        KINDS + "test_products_and_sums_are_rounded_apart_on_cpp"),
    bug("fast-math flags: division by reciprocals, sums reassociated (C++)", "kgen/runtime/build.py", '"-fno-math-errno"', '"-ffast-math"',
        KINDS + "test_products_and_sums_are_rounded_apart_on_cpp"),
    bug("a cached build is not verified", "kgen/runtime/cache.py", "data[-DIGEST:] != _sign(name + suffix, payload)", "False",
        "tests/runtime/test_cache.py::test_an_entry_under_anothers_name_counts_as_missing"),
    # ------------------------------------------------------------------------------------------- what all targets share
    bug("the identity of max is 0", "kgen/monoids.py", 'Monoid("max", "max", (Field(identity="least"),)),',
        'Monoid("max", "max", (Field(),)),', KINDS + "test_rows_of_every_length_on_cpp"),
    bug("the identity of a product is 0", "kgen/monoids.py", 'Monoid("prod", "mul", (Field(identity="1"),)),', 'Monoid("prod", "mul", (Field(),)),',
        KINDS + "test_rows_of_every_length_on_cpp", EMULATED + "test_what_is_picked_counted_and_shifted"),
    bug("bools are summed in their own width", "kgen/lower.py", 'if dtype is i64 and v.op in ("sum", "prod"):', 'if dtype is i64 and v.op == "prod":',
        LOWER + "test_sums_of_integers_and_bools_accumulate_in_i64"),
    bug("a 0-d tensor counts as one with dims in promotion", "kgen/types.py", "not isinstance(t, Number) and dims]", "not isinstance(t, Number)]",
        INTEGERS + "test_mixed_dtypes_promote_as_torch_promotes_them[i8]"),
    bug("a literal is printed with seven digits", "kgen/backends/text.py", "return repr(x)", 'return f"{x:.7g}"',
        KINDS + "test_numbers_keep_their_digits_on_cpp"),
    bug("a number is rounded to f64 and then to f32", "kgen/backends/text.py", "if not isinstance(value, str) and Fraction(x) != value:", "if False:",
        KINDS + "test_numbers_keep_their_digits_on_cpp"),
    bug("a reserved word is not renamed", "kgen/backends/base.py", "return self.keywords | self.members", "return self.members",
        KINDS + "test_reserved_words_are_renamed"),
    bug("a comment that ends in a backslash swallows a line", "kgen/backends/text.py", 'if line.endswith(("\\\\", "??/")) else line', "if False else line",
        KINDS + "test_a_comment_ends_with_its_line"),
    bug("brackets are left out on the right: a - (b - c)", "kgen/backends/text.py", "infix + (not hole.first)", "infix",
        KINDS + "test_operands_keep_their_brackets_on_cpp"),
    bug("x * 0 is 0", "kgen/rewrite.py", 'return defs[let.expr.operands[0].name] if let.expr.name in ("stop", "pos") else None',
        'if let.expr.name == "mul" and literal_of(_operands(let, defs)[1], defs) == 0:\n        return _operands(let, defs)[1]\n    '
        'return defs[let.expr.operands[0].name] if let.expr.name in ("stop", "pos") else None',
        REWRITE + "test_nothing_is_cancelled_or_reordered"),
    bug("x - x is 0", "kgen/rewrite.py", 'return defs[let.expr.operands[0].name] if let.expr.name in ("stop", "pos") else None',
        'if let.expr.name == "sub" and len(set(let.expr.operands)) == 1 and not let.is_number:\n        return build.literal("0", let)\n    '
        'return defs[let.expr.operands[0].name] if let.expr.name in ("stop", "pos") else None',
        REWRITE + "test_nothing_is_cancelled_or_reordered"),
    bug("x / 3 is x * (1 / 3)", "kgen/rewrite.py", "if value is None or not _power_of_two(abs(value)):", "if not value:",
        REWRITE + "test_other_divisions_stay[3]"),
    bug("x^4 is x^3 * x^3", "kgen/rewrite.py", "return times(square, x if power == 3 else square, let.label)",
        "return times(square if power == 3 else times(square, x), x if power == 3 else square, let.label)",
        REWRITE + "test_small_powers_keep_their_bound"),
    bug("folding loses the sign of zero", "kgen/rewrite.py", "if value == 0 and math.copysign(1, value) < 0:", "if False:",
        REWRITE + "test_folding_keeps_the_sign_of_zero[-0.0]"),
    bug("what meets a double is computed in f32", "kgen/types.py", "return Float(a.of | b.of)", "return a",
        KINDS + "test_what_meets_a_double_is_computed_in_double_on_cpp"),
    bug("a picked element is not checked against the dim's end", "kgen/expand.py", 'Op("lt", ref(at.name), ref(size.name))', 'Op("le", ref(at.name), ref(size.name))',
        KINDS + "test_what_is_picked_outside_is_nan"),
    bug("places of an argmax over two dims count the wrong one", "kgen/expand.py", 'size = self.cast(self.build.add(leaf("size", d), INT, (), let.span))',
        'size = self.cast(self.build.add(leaf("size", dims[0]), INT, (), let.span))', INTERPRETED),
    bug("the mean counts one dim of two", "kgen/expand.py", "for d in dims[1:]:\n        size = build.add", "for d in ():\n        size = build.add",
        KINDS + "test_a_mean_over_two_dims_counts_both"),
    bug("an overlap of what is written with what is read is not refused", "kgen/runtime/arguments.py", "return a0 < b1 and b0 < a1", "return False",
        KERNEL + "test_results_that_overlap_arguments_are_refused"),
    bug("what is expanded may be written", "kgen/runtime/arguments.py", "if step < room:", "if step < 0:",
        KERNEL + "test_a_wrong_call_says_what_is_wrong[elements of out share memory]"),
    bug("the greatest of no elements is an infinity", "kgen/runtime/arguments.py", "if math.prod(call.size(d) for d in v.attr) == 0:", "if False:",
        SPECS + "test_no_elements_give_what_eager_gives[cpp]"),
    bug("variance as E[x^2] - E[x]^2", "kgen/prelude.k", "sum[D](center[D](x)^2) / max(D - 1, 0)", "(sum[D](x^2) - D * mean[D](x)^2) / max(D - 1, 0)",
        KINDS + "test_a_variance_far_from_zero_keeps_its_digits"),
    bug("a row of infinities makes its logsumexp NaN", "kgen/prelude.k", "shift[D](x) if isfinite(shift[D](x)) else 0", "shift[D](x)",
        "tests/ops/test_prelude.py::test_a_prelude_function_over_a_dim_is_torchs_also_of_infinite_and_nan_rows[logsumexp]"),
    bug("the host's remainder has the dividend's sign", "kgen/ops/numbers.py", "return r + b if r != 0 and (r < 0) != (b < 0) else r", "return r",
        "tests/frontend/test_host.py::test_numbers_are_computed_as_torch_computes_scalars[mod-float]"),
    # ------------------------------------------------------------------------------------------------------- gradients
    bug("the gradient of cos has the wrong sign", "kgen/ops/table.py", '("-dy * sin(x)",)', '("dy * sin(x)",)', TABLE + "test_a_gradient_is_torchs_at_random_points_kinks_ties_bounds_and_nan[cos-x]"),
    bug("a tie of a maximum gets its gradient twice", "kgen/ops/table.py", 'Reduction("max", "same", "amax", "-inf", "(dy if x == y else 0) / sum[D](i64(x == y))"',
        'Reduction("max", "same", "amax", "-inf", "dy if x == y else 0"', GRAD + "test_ties_kinks_and_nan_are_torchs[max[N](x) at [1.0, 3.0, 3.0, -1.0]]"),
    bug("relu's gradient at 0 is 1", "kgen/ops/table.py", '("0 if x <= 0 else dy",)', '("0 if x < 0 else dy",)', GRAD + "test_ties_kinks_and_nan_are_torchs[relu(x) at [-1.0, -0.0, 0.0, 1.0, nan, inf]]"),
    bug("stop is ignored", "kgen/ops/table.py", 'lambda t, x: x.detach(), ("0",)', 'lambda t, x: x.detach(), ("dy",)', GRAD + "test_a_gradient_is_autograds[stop-saved]"),
    bug("the gradient of what broadcasts is not summed", "kgen/grad.py", "extra = tuple(d for d in dims if d not in self.values[v].dims)", "extra = ()", GRAD + "test_a_gradient_is_autograds[add_rmsnorm-saved]"),
    bug("a rounded result stands for the value that the backward needs", "kgen/grad.py", "if r.dtype == saving.kept_dtype(v.type) and r.dims == v.dims}",
        "if r.dims == v.dims}", "tests/grad/test_saving.py::test_norms_and_losses_save_a_value_a_row[add_rmsnorm]"),
    bug("the branch that was not taken has a say", "kgen/tape.py", "guards = (*guards, (guard, wanted))", "pass", GRAD + "test_a_gradient_is_autograds[clip_by_value-saved]"),
    bug("a maximum that matters gets no gradient", "kgen/invariant.py", "return not roots & set(moved)", "return True", GRAD + "test_a_gradient_is_autograds[several levels-saved]"),
    bug("any difference is taken to be about its own mean", "kgen/tape.py", 'return mean.op == "mean" and', "return", GRAD + "test_a_gradient_is_autograds[about other than its mean-saved]"),
    bug("of what is left by a mean its own factor is lost", "kgen/tape.py", "for op, other in reversed(term.factors):", "for op, other in ():", GRAD + "test_a_gradient_is_autograds[layernorm-saved]"),
    bug("a block's columns are its first team's", "templates/cuda/library/kgen_rounds.cuh", "if constexpr (Under::TEAMS > 1) {", "if constexpr (false) {", ROUNDS + "test_rows_of_all_kinds_stay_within_their_bounds"),
    bug("what a team adds up replaces what it had", "templates/cuda/library/kgen_rounds.cuh", "written = true;", "", ROUNDS + "test_a_team_of_many_rows_adds_to_what_it_left"),
    bug("a row is taken while it is on its way", "templates/cuda/library/kgen_rounds.cuh", '"n"(STAGES > 0 ? STAGES - 1 : 0)', '"n"(STAGES)', ROUNDS + "test_rows_of_all_kinds_stay_within_their_bounds"),
    bug("rows need what their columns give", "kgen/columns.py", "return not _needs(host, column) and not any(", "return not any(", ROUNDS + "test_what_is_read_once"),
    bug("of two contributions one is lost", "kgen/tape.py", 'Part(self.build("a + b", a=a.raw, b=b.raw), a.guards)', "a", GRAD + "test_a_gradient_is_autograds[add_rmsnorm-saved]"),
    # ------------------------------------------------------------------------------------------------------------ CUDA
    bug("missing barrier between a warp's part and the block's (CUDA)", "templates/cuda/library/kgen_walk.cuh", "            __syncthreads();\n            Words<Part> words;",
        "            Words<Part> words;", EMULATED + "test_rows_are_reduced_whoever_takes_them"),
    bug("a copy to shared memory is not waited for (CUDA)", "templates/cuda/library/kgen_walk.cuh", 'if constexpr (KEEP == 2) asm volatile("cp.async.wait_all;" ::: "memory");', "",
        EMULATED + "test_rows_are_reduced_whoever_takes_them"),
    bug("mask of a row's end off by one (CUDA)", "templates/cuda/library/kgen_walk.cuh", "lane + j * size < edges", "lane + j * size + 1 < edges",
        EMULATED + "test_rows_are_reduced_whoever_takes_them"),
    bug("sums about a maximum do not fall where it rises (CUDA)", "templates/cuda/functions/fall.cu", "F(1) : exp_below(a - b)", "F(1) : F(1)",
        "tests/cuda/test_cuda_online.py::test_rows_of_all_kinds_agree_with_the_formula"),
    bug("squares do not move with their mean (CUDA)", "templates/cuda/functions/spread.cu", "n * squared(", "0 * squared(",
        "tests/cuda/test_cuda_online.py::test_squares_about_a_mean_stay_within_their_bound"),
    bug("what an entropy moves by is not weighed (CUDA)", "kgen/monoids.py", 'Move("", "*=", _DESCENT), Move("mass", "*=", _DESCENT)', 'Move("", "*=", _DESCENT)',
        "tests/cuda/test_cuda_online.py::test_weighted_sums_stay_within_their_bounds"),
    bug("a brief form where digits cancel", "kgen/ops/table.py", "calm=lambda k, a, b: a == b != 0", "calm=ALWAYS",
        "tests/precision/test_precision.py::test_near_where_terms_are_added_and_what_follows_is_steady"),
    bug("a near form in a divisor that digits cancel in", "kgen/ops/table.py", "calm=ALWAYS, steady=FIRST", "calm=ALWAYS, steady=ALWAYS",
        "tests/precision/test_precision.py::test_a_divisor_that_digits_cancel_in_is_accurate"),
    bug("a polynomial about 0 has a wrong factor (CUDA)", "templates/cuda/functions/log_about_1.cu", "0.19893165f", "0.19883165f",
        "tests/precision/test_forms.py::test_near_forms_stay_within_their_bound_about_a_near_argument"),
    bug("lanes pair up with the wrong neighbour (CUDA)", "templates/cuda/library/kgen_walk.cuh", "for (int apart = 1; apart < LANES; apart *= 2) {\n            Words<Part> words(part);",
        "for (int apart = 2; apart < LANES; apart *= 2) {\n            Words<Part> words(part);", EMULATED + "test_rows_are_reduced_whoever_takes_them"),
    bug("a block writes what another's row is (CUDA)", "templates/cuda/library/kgen_walk.cuh", "return inside && lane == 0 && (!CLUSTER", "return lane == 0 && (!CLUSTER",
        EMULATED + "test_rows_are_reduced_whoever_takes_them"),
    bug("max drops NaN (CUDA)", "templates/cuda/functions/greatest.cu", "max.NaN.f32", "max.f32", EMULATED + "test_rows_are_reduced_whoever_takes_them"),
    bug("the last of equals wins an argmax (CUDA)", "templates/cuda/functions/goes_before.cu", "(alike && i < j)", "(alike && i > j)",
        EMULATED + "test_rows_are_reduced_whoever_takes_them"),
    bug("the remainder has the dividend's sign (CUDA)", "templates/cuda/functions/floor_mod.cu", "return r != 0 && (r < 0) != (b < 0) ? I(r + b) : r;", "return r;",
        EMULATED + "test_what_is_picked_counted_and_shifted"),
    bug("a shift by the width or more is not guarded (CUDA)", "templates/cuda/functions/shift_left.cu", "u64(n) < 8 * sizeof(I) ? I(u64(a) << u64(n)) : I(0)",
        "I(u64(a) << (u64(n) % 64))", EMULATED + "test_what_is_picked_counted_and_shifted"),
    bug("alignment unchecked (CUDA, launched by Python)", "kgen/runtime/nvrtc.py", "itemsize and (address % (vec * itemsize) or any(s % vec for s in outer))",
        "itemsize and any(s % vec for s in outer)", CUDA + "test_plan_visits_each_element_once"),
    bug("32-bit addresses beyond 2^32 elements (CUDA, launched by Python)", "kgen/runtime/nvrtc.py",
        " or last > UINT_MAX", "", CUDA + "test_plan_edges"),
    bug("32-bit addresses in rows (CUDA, launched by Python)", "kgen/runtime/rows.py", "FAR = 2**32 - 1 - 2**20", "FAR = 2**64", CUDA_ROWS + "test_schedules"),
    bug("32-bit addresses by numel alone (CUDA, its own launcher)", "templates/cuda/library/kgen_maps.cuh", "wide = wide || this->last(k) > UINT_MAX;", "",
        KINDS + "test_the_launcher_in_the_source_plans_as_python_does"),
    bug("alignment unchecked (CUDA, its own launcher)", "templates/cuda/library/kgen_maps.cuh",
        "(bytes > 0 && uintptr_t(operands[k].pointer) % u64(vec * bytes) != 0)", "false", KINDS + "test_the_launcher_in_the_source_plans_as_python_does"),
    bug("a ladder's step is asked for one vector too few (CUDA, its own launcher)", "templates/cuda/library/kgen_plan.cuh",
        "if (chunks > steps.at[i].longest ||", "if (chunks >= steps.at[i].longest ||", LAUNCHES + "test_show_prints_the_launches_of_a_written_file"),
    bug("empty tensors are launched (CUDA)", "kgen/runtime/nvrtc.py", "if n == 0:\n        return None\n    shape", "shape", CUDA + "test_plan_edges"),
    bug("products and sums contract, quotients are approximate (CUDA)", "kgen/runtime/nvrtc.py", '"-fmad=false", "-prec-div=true"', '"-fmad=true", "-prec-div=false"',
        KINDS + "test_cuda_is_compiled_for_exact_arithmetic"),
    bug("denormals are flushed (CUDA)", "kgen/runtime/nvrtc.py", '"-ftz=false"', '"-ftz=true"', KINDS + "test_cuda_is_compiled_for_exact_arithmetic"),
    # ---------------------------------------------------------------------------------------------------------- Triton
    bug("32-bit addresses beyond 2^31 elements (Triton)", "templates/triton/map_launch.py.jinja", "tl.uint64 if far > 2**31 else tl.uint32", "tl.uint32",
        KINDS + "test_triton_counts_far_elements_in_64_bits"),
    bug("64-bit addresses by numel alone (Triton)", "templates/triton/rows_launch.py.jinja", "tl.int64 if far > 2**30 else", "tl.int64 if length > 2**30 else",
        KINDS + "test_triton_counts_far_elements_in_64_bits"),
    bug("mask of a row's end off by one (Triton)", "templates/triton/rows.py.jinja", "        inside = present & (column < length)", "        inside = present & (column <= length)", INTERPRETED),
    bug("mask of the last block off by one (Triton)", "kgen/backends/triton_maps.py", '"lane[0] + lane[1] < numel - first"', '"lane[0] + lane[1] < numel - first - 1"', INTERPRETED),
    bug("max drops NaN (Triton)", "templates/triton/functions/greatest.py", "tl.PropagateNan.ALL", "tl.PropagateNan.NONE", KINDS + "test_triton_compiles_to_exact_instructions"),
    bug("the last of equals wins an argmax (Triton)", "templates/triton/functions/first_greatest.py", "greater | equal & (j < i)", "greater | equal & (j > i)",
        INTERPRETED),
    bug("division is approximate (Triton)", "templates/triton/functions/divide.py", "return tl.div_rn(x, y)", "return x / y", KINDS + "test_triton_compiles_to_exact_instructions"),
    bug("square roots are approximate (Triton)", "templates/triton/functions/square_root.py", "return tl.sqrt_rn(x)", "return tl.sqrt(x)",
        KINDS + "test_triton_compiles_to_exact_instructions"),
    bug("denormals are flushed (Triton)", "templates/triton/kernel.py.jinja", 'OPTIONS["enable_reflect_ftz"] = False', 'OPTIONS["enable_reflect_ftz"] = True',
        KINDS + "test_triton_compiles_to_exact_instructions"),
    bug("products and sums contract (Triton)", "templates/triton/kernel.py.jinja", '"enable_fp_fusion": False', '"enable_fp_fusion": True',
        TRITON_ROWS + "test_the_schedule_follows_from_the_row_and_how_many_there_are", KINDS + "test_triton_compiles_to_exact_instructions"),
    bug("a cast to integer does not saturate (Triton)", "templates/triton/functions/saturate.py", "return tl.where(over, tl.full([], high, D), y)", "return y",
        INTERPRETED),
    bug("empty tensors are launched (Triton)", "templates/triton/rows_launch.py.jinja", "    if count == 0:\n        return\n", "",
        TRITON_ROWS + "test_the_schedule_follows_from_the_row_and_how_many_there_are"),
    bug("alignment unchecked (Triton)", "templates/triton/rows_launch.py.jinja", "return n if x.data_ptr() % 16 == 0 and all(jump % n == 0 for jump in jumps) else 1",
        "return n", KINDS + "test_triton_takes_whole_vectors_only_where_rows_begin_with_one"),
)  # fmt: skip
