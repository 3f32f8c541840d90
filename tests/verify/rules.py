"""Mutation rules: what is put into a kernel's source to see whether it is found.

A rule has a name, what it stands for, and edits by the language of a source: a pattern and what it is replaced by, at one place at a
time.  An edit may have more parts, which are made wherever they match, together with the one place.  Comments and docstrings are left
alone.  Languages: "c++" (kgen's .cpp and C++ by hand), "torch" (plain torch by hand), "python" (whatever is Python: wrappers too),
"triton" (kgen's and by hand), "cuda" (kgen's .cu and by hand).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """A pattern and its replacement (of `re.sub`), at one place; `also` are made at every place.  `needs` is a pattern of what the text must have:
    of a change to f16's conversions, functions for f16."""

    pattern: str
    text: str
    also: tuple[tuple[str, str], ...] = ()
    needs: str = ""


@dataclass(frozen=True)
class Rule:
    """A fault by name, in words, with its edits by language."""

    name: str
    what: str
    edits: dict[str, tuple[Edit, ...]]


def rule(name: str, what: str, **edits: object) -> Rule:
    """A rule; edits are pairs, or lists of pairs, by language (`cpp` is "c++")."""
    made: dict[str, tuple[Edit, ...]] = {}
    for language, given in edits.items():
        pairs = given if isinstance(given, list) else [given]
        made["c++" if language == "cpp" else language] = tuple(e if isinstance(e, Edit) else Edit(*e) for e in pairs)
    return Rule(name, what, made)


#: A line of the formula in kgen's C++ and CUDA: it stands below the comment with its equation.
_LINE = r"(?<=\n)([ \t]*)const F (\w+) = "
_LOAD = r"(?<=const F )(\w+) = F\((\w+_tile\[j \+ l\])\);"

MASKS = (
    rule("lost mask", "what lies behind a row's end is reduced too",
         cpp=(r"l < left \? (\w+_given\[l\]) : (?:F\(-?\w+\)|\w+\{\})", r"\1"),
         triton=(r"tl\.where\((?:inside|mask), (.+?), (?:0\.0|1\.0|-?float\(\"-?inf\"\))\)(?=, (?:axis=)?[01])", r"\1"),
         cuda=(r"i < n \? (\w+\[.+?\]|F\(\w+\[.+?\]\)) : (?:F\(-?\w+(?:\(\))?\)|-?INFINITY|0\.0f)", r"\1")),
    rule("lost load mask", "what lies behind a tensor's end is read",
         triton=(r"(tl\.load\([^,\n]+(?:\([^\n]*\))?), (?:inside|mask)(?:, other=[^)]+\)|, 0\.0\))?\)", r"\1)"),
         cuda=(r"if \(i >= layout\.n\) return;", "")),
    rule("lost store mask", "what lies behind a result's end is written",
         triton=(r"(tl\.store\(.+), (?:inside|mask)\)(?=\n)", r"\1)"),
         cpp=(r"for \(int64_t j = 0; j < count; j\+\+\) (base\[offset)", r"for (int64_t j = 0; j <= count; j++) \1")),
    rule("tail one short", "the last element is left out of a reduction",
         cpp=[(r"l < left \?", "l < left - 1 ?"), (r"(?<=; )([ij]) < n; \1\+\+", r"\1 < n - 1; \1++"),
              (r"i < n && i < begin \+ 256", "i < n - 1 && i < begin + 256")],
         triton=(r"(?<=\()(column|cols) < (length|n)\)", r"\1 < \2 - 1)"),
         torch=(r"range\((1, )?x\.shape\[(-[12])\]\)", r"range(\1x.shape[\2] - 1)"),
         cuda=(r"i < n; i \+=", "i < n - 1; i +=")),
    rule("tail one long", "an element behind the last is taken",
         cpp=[(r"l < left \?", "l <= left ?"), (r"(?<=; )([ij]) < n; \1\+\+", r"\1 <= n; \1++")],
         triton=(r"(?<=\()(column|cols) < (length|n)\)", r"\1 <= \2)"),
         cuda=(r"i < n; i \+=", "i <= n; i +=")),
    rule("first element left out", "a loop begins with the second element",
         cpp=[(r"int64_t ([ij]) = 0; \1 < n; \1\+\+", r"int64_t \1 = 1; \1 < n; \1++"),
              (r"for \(int64_t j = 0; j < count; j\+\+\) (\w+_tile\[j\]|tile\[j\]|y_to)", r"for (int64_t j = 1; j < count; j++) \1")],
         triton=(r"(?<=\()(column|cols) < (length|n)\)", r"\1 > 0) & (\1 < \2)")),
    rule("last group dropped", "what is left behind whole groups is not taken",
         cpp=[(r"if \(groups < count\) (?:group|around)\(groups, std::false_type\(\)\);", ";"),
              (r"for \(; i < n; i\+\+\) lanes\[0\][^;]+;", ""), (r"loop\.numel \+ TILE - 1\) / TILE", "loop.numel) / TILE")],
         triton=(r"triton\.cdiv\((numel|x\.numel\(\)), (\w+)\)", r"(\1 // \2)")),
    rule("last row left out", "the last row is not computed",
         cpp=[(r"int64_t r = 0; r < rows; r\+\+", "int64_t r = 0; r < rows - (rows > 2); r++"),
              (r"units = \(rows\.numel \+ WIDTH - 1\) / WIDTH;", "units = (rows.numel + WIDTH - 1) / WIDTH - (rows.numel > 2 && !ACROSS);"),
              (r"row < batch \* s; row\+\+", "row < batch * s - (batch * s > 2); row++"), (r"int64_t r = 0; r < batch \* groups; r\+\+",
               "int64_t r = 0; r < batch * groups - 1; r++"), (r"int64_t i = 0; i < count; i\+\+", "int64_t i = 0; i < count - 1; i++")],
         triton=(r"present = row < rows // EVEN\[0\] \* EVEN\[0\]", "present = row < rows // EVEN[0] * EVEN[0] - 1")),
    rule("every eighth row left out", "results are written in part", cpp=(r"int64_t r = 0; r < rows; r\+\+\) \{", "int64_t r = 0; r < rows; r++) {\n        if (r % 8 == 7) continue;")),
)  # fmt: skip

IDENTITIES = (
    rule("identity of 0 for a maximum", "a maximum begins with 0",
         cpp=(r"(?<=[(= ])-INFINITY(?=[,;)])", "0"), triton=(r"float\(\"-inf\"\)", "0.0"), cuda=(r"F\(-infinity\(\)\)|-INFINITY", "F(0)")),
    rule("identity of a large number for a maximum", "a maximum begins with -1e30",
         cpp=(r"(?<=[(= ])-INFINITY(?=[,;)])", "-1e30"), triton=(r"float\(\"-inf\"\)", "-1e30"), cuda=(r"F\(-infinity\(\)\)|-INFINITY", "F(-1e30f)"),
         torch=(r"-math\.inf", "-1e30")),
    rule("identity of 1 for a sum", "a sum begins with 1",
         cpp=[(r"(std::fill_n\(\w+, GROUP, )F\(0\)", r"\1F(1)"), (r"((?:sum|squares|total|block) = )0(?=[,;])", r"\g<1>1"),
              (r"const Partial none = \{F\(0\)", "const Partial none = {F(1)")],
         triton=(r"(tl\.where\(inside, \w+, )0\.0\)", r"\g<1>1.0)"), torch=(r"torch\.zeros\(", "torch.ones(")),
    rule("lanes begin with 1", "each lane of a sum begins with 1", cpp=(r"(Pairwise<F, ACROSS \? WIDTH : GROUP, decltype\(\w+\)> \w+\()F\(0\)", r"\1F(1)")),
)  # fmt: skip

PRECISION = (
    rule("sum in 16 bits", "a sum is rounded to the tensor's dtype at each step",
         cpp=[(r"return F\(first \+ next\);", "T r; r = F(first + next); return F(r);"),
              (r"(?<=\s)(sum|squares|block|total) \+= ([^;]+);", r"\1 = double(compute<T>(T(compute<T>(\1 + (\2)))));")],
         torch=(r"\b(e|shifted\.exp\(\)|centred\.square\(\))\.(sum|mean)\(", r"\1.to(x.dtype).\2("),
         triton=(r"tl\.reduce\(tl\.where\(inside, (\w+), 0\.0\), 1, plus", r"tl.reduce(tl.where(inside, \1, 0.0).to(T), 1, plus")),
    rule("no wider dtype", "all is computed in the tensor's dtype",
         torch=[(r"wide = x if x\.dtype == torch\.float64 else x\.float\(\)", "wide = x"), (r"wide = torch\.float64 if (\w+)\.dtype == torch\.float64 else torch\.float32", r"wide = \1.dtype"),
                (r"s if s\.dtype == torch\.float64 else s\.float\(\)", "s")]),
    rule("rounded twice", "a value on the way is rounded to the tensor's dtype",
         cpp=[(r"(?<=\n)([ \t]*)const F (e|t0|t1|u|c|h|s_|loss|mean|d) = ([^;\n]+);(?=\n)", r"\1T \2_rounded;\n\1\2_rounded = F(\3);\n\1const F \2 = F(\2_rounded);"),
              (r"const double (\w+) = ([^;,]+);", r"const double \1 = double(compute<T>(T(compute<T>(\2))));")],
         torch=(r"(?<=\n)    (e|centred|shifted|y|h|slope|total|scale|length) = (.+)(?=\n)", r"    \1 = (\2).bfloat16().to((\2).dtype)"),
         triton=(r"(?<=\n)    (e|c|mu|h) = (?!fast_exp|libdevice)(.+)(?=\n)", r"    \1 = (\2).to(T).to(F)")),
    rule("f64 in f32", "doubles are computed in floats", cpp=Edit(r"using F = compute<T>;", "using F = float;", needs=r"_f64\(|with_type"),
         torch=[(r"wide = x if x\.dtype == torch\.float64 else x\.float\(\)", "wide = x.float()"),
                (r"wide = torch\.float64 if \w+\.dtype == torch\.float64 else torch\.float32", "wide = torch.float32")]),
    rule("a sum of squares less the mean's", "E[x^2] - E[x]^2 for a variance",
         torch=(r"centred\.square\(\)\.(mean|sum)\(-1(, keepdim=True)?\)", r"((wide.square().mean(-1\2) - wide.mean(-1\2).square()) * (wide.shape[-1] if '\1' == 'sum' else 1))"),
         cpp=[Edit(r"squares \+= \(double\(F\(from\[i\]\)\) - mean\) \* \(double\(F\(from\[i\]\)\) - mean\);", "squares += double(F(from[i]) * F(from[i])) - double(F(mean) * F(mean));"),
              (r"F\(squared\(x - centre\(\w+_top, \w+_count_top\)\)\)", "F(x * x)"),
              (r"squares \+= d \* \(v - mean\);", "squares += double(float(v) * float(v)) - (i + 1 == n ? double(n) * double(float(mean) * float(mean)) : 0);")],
         triton=(r"tl\.where\(inside, c \* c, 0\.0\), 1, plus, keep_dims=True\)", "tl.where(inside, x * x, 0.0), 1, plus, keep_dims=True) - N * mu * mu")),
    rule("cut to 16 bits", "a result is cut to bf16, not rounded", cpp=Edit(r"\(u \+ 0x7fff \+ \(u >> 16 & 1\)\) >> 16", "u >> 16", needs=r"_bf16\("),
         torch=(r"(?<=return )\((.+)\)\.to\((\w+)\.dtype\)", r"(\1).view(torch.int32 if \2.dtype != torch.float64 else torch.int64).bitwise_and(-65536 if \2.dtype == torch.bfloat16 else -1).view(torch.float64 if \2.dtype == torch.float64 else torch.float32).to(\2.dtype)")),
    rule("halves rounded up", "ties of bf16 go away from zero", cpp=Edit(r"\+ \(u >> 16 & 1\)\) >> 16", "+ 1) >> 16", needs=r"_bf16\(")),
    rule("subnormals of the operand flushed", "what is read below the normal numbers is 0",
         cpp=[(r"F\((\w+_tile\[(?:j \+ l|i|j)\])\)", r"(std::fabs(F(\1)) < F(1.1754944e-38f) ? F(0) : F(\1))"),
              (r"F\((x\[i\]|row\[i\]|g\[i\]|x\[r \* n \+ i\]|from\[i\]|row\[j\])\)", r"(std::fabs(F(\1)) < F(1.1754944e-38f) ? F(0) : F(\1))")],
         torch=(r"(\bx\b)(\.float\(\)|\.to\(wide\))", r"torch.where(\1\2.abs() < 1.1754944e-38, 0.0, \1\2)"),
         triton=(r"\.to\(F\)(?=\n)", ".to(F) * 1.0 + 0.0")),
    rule("subnormals of the result flushed", "what is written below the normal numbers is 0",
         cpp=[(r"(y_tile\[j \+ l\]|y_i|y_held\[j\]) = (\w+);", r"\1 = std::fabs(\2) < 1.1754944e-38f ? F(0) : \2;"),
              (r"T\(F\(([^;]+)\)\);", r"T(std::fabs(F(\1)) < F(1.1754944e-38f) ? F(0) : F(\1));")],
         torch=(r"(?<=return )\((.+)\)\.to\((\w+)\.dtype\)", r"torch.where((\1).abs() < 1.1754944e-38, 0.0, (\1)).to(\2.dtype)")),
    rule("exp without subnormals", "exp is 0 below the normal numbers", cpp=(r"most < -104\.0f \? -104\.0f", "most < -87.0f ? -110.0f"),
         torch=(r"torch\.exp\(((?:[^()]|\([^()]*\))+)\)", r"torch.where((\1) < -87, 0.0, torch.exp(\1))")),
    rule("a coarse exp", "exp is (1 + x / 1024)^1024, or a polynomial with a wrong coefficient",
         cpp=[(r"(?<!return )std::exp\((?=[-a-z])", "[](double a) { return a < -1024 ? 0.0 : std::pow(1 + a / 1024, 1024); }("), (r"0\.166666135f", "0.1661f"), (r"0\.166818261f", "0.1600f")],
         torch=(r"torch\.exp\(((?:[^()]|\([^()]*\))+)\)", r"(1 + (\1) / 1024).pow(1024)")),
    rule("1 + erf for erfc", "digits cancel in the far tail", cpp=(r"std::erfc\(-((?:[^()]|\([^()]*\))+)\)", r"(1 + std::erf(\1))")),
    rule("exp(x) - 1 for expm1, log(1 + x) for log1p", "digits cancel near zero",
         cpp=[(r"std::expm1\((\w+)\)", r"(std::exp(\1) - F(1))"), (r"std::log1p\(", "std::log(F(1) + ")], torch=(r"torch\.log1p\(", "torch.log(1 + ")),
    rule("a root to 12 bits", "a fast reciprocal root without its Newton step",
         cpp=(r"(?:F\(1\)|1\.0) / std::sqrt\(([^;]+)\);", r"[](float a) { uint32_t u; std::memcpy(&u, &a, 4); u = 0x5f3759df - (u >> 1); float r; std::memcpy(&r, &u, 4); "
              r"r *= 1.5f - 0.5f * a * r * r; return r * (1.5f - 0.5f * a * r * r); }(\1);"),
         torch=(r"torch\.rsqrt\((.+?) \+ eps\)", r"torch.rsqrt((\1) + eps).bfloat16().to((\1).dtype)")),
    rule("reciprocal and product for a quotient", "one over the sum, in 16 bits", torch=(r"\((e) / (e\.sum\(-1, keepdim=True\))\)", r"(\1 * (1 / \2).half().to(\1.dtype))"),
         cpp=(r"const F y = (\w+) / (\w+);", r"T inverse_;\n                                inverse_ = F(1) / \2;\n                                const F y = \1 * F(inverse_);")),
    rule("wrong in the fourth digit", "a constant of the formula",
         cpp=[(r"0\.7071067811865476", "0.7072067811865476"), (r"0\.70710678118654752", "0.7072"), (r"0\.7978845608028654", "0.7979845608028654"), (r"0\.044715\b", "0.04475"),
              (r"(?<![\w.])(?:F\()?0\.5(?:f\)|\)|f)?(?= \*)", "F(0.5002)"), (r"0\.6931471805599453", "0.6932471805599453")],
         torch=[(r"(?<![\w.])0\.5(?= \*)", "0.5002"), (r"/ 127\b", "/ 127.03")], triton=[(r"0\.7071067811865476", "0.7072067811865476"), (r"\b0\.5 \*", "0.5002 *")],
         cuda=[(r"0\.7071067811865476", "0.7072067811865476"), (r"F\(0\.5\)", "F(0.5002)")]),
    rule("polynomial wrong in the fourth digit", "a coefficient of a function's polynomial",
         cpp=[(r"0\.72134752f", "0.72144752f"), (r"4\.16612364e-2f", "4.1699e-2f"), (r"0\.500000358f", "0.50003f"), (r"0\.499869645f", "0.4980f"), (r"1\.38629436f", "1.38650f")]),
    rule("off by a part in 10000", "every result is 1.0001 times too large",
         cpp=[(r"(y_tile\[j \+ l\]|y_held\[j\]|\by\[[^\]]+\]) = (?:T\(F\()(.+)\)\);", r"\1 = T(F(1.0001 * (\2)));"), (r"(y_tile\[j \+ l\]|y_held\[j\]) = (\w+);", r"\1 = F(1.0001) * \2;")],
         torch=(r"(?<=return )\((.+)\)\.to\((\w+)\.dtype\)", r"(1.0001 * (\1)).to(\2.dtype)"), triton=(r"(tl\.store\([^\n]+, )(y)(, \w+\))", r"\1\2 * 1.0001\3")),
)  # fmt: skip

SPECIAL = (
    rule("a maximum that drops NaN", "NaN does not go through",
         cpp=[(r"return a != a \? a : (greater|lesser);", r"return \1;"), (r" \|\| v != v(?=[)])", "")], triton=(r", propagate_nan=tl\.PropagateNan\.ALL", ""),
         torch=[(r"\bwide\.amax\(", "wide.nan_to_num(nan=-3e38, posinf=torch.inf, neginf=-torch.inf).amax("), (r" \| torch\.isnan\(column\)", "")],
         cuda=[(r"greatest\(", "fmaxf(")]),
    rule("no guard of infinite maxima", "a difference of infinities is NaN",
         cpp=[(r"std::fabs\(x\) < F\(INFINITY\) \? x : F\(0\)", "x"), (r"a == b \? F\(1\) : exp_below\(a - b\)", "exp_below(a - b)"), (r"std::isinf\(m\) \? 0\.0 : m", "m"),
              (r"std::isfinite\(sum\) \? F\(sum \+ lost\) : plain", "F(sum + lost)"), (r"peak == -INFINITY \? 0\.0 : ", ""), (r"if \(v != -INFINITY \|\| peak != -INFINITY\) ", "")],
         triton=[(r"tl\.where\(a == b, 1\.0, (exp_below\(a - b\))\)", r"\1"), (r"tl\.where\(is_finite\(x\), x, 0\.0\)", "x")]),
    rule("no shift by the maximum", "exp overflows",
         cpp=[(r"(brief_exp<T>|exponential|exp_below)\(x - (?:max_N|m|finite_or_zero\(\w+\.?\w*\))\)", r"\1(x)"), (r"const double about = [^;]+;", "const double about = 0;"),
              (r"finite_or_zero\(max_N_top\)", "F(0)")],
         torch=(r"wide - wide\.amax\(-1, keepdim=True\)", "wide"), triton=(r"(brief_exp|exp_below|tl\.exp)\(x - \w+", r"\1(x")),
    rule("a mask by product", "NaN and infinities come through where nothing is selected",
         torch=[(r"torch\.where\((\w+ == \w+), 0\.0, (.+)\)", r"((~(\1)) * (\2))"), (r"wide\.masked_fill\(~mask, -math\.inf\)", "wide * mask + (~mask) * -1e30"), (r"torch\.where\(inside, picked, torch\.nan\)", "picked")],
         cpp=(r"\(?\((\w+ == F\(0\))\) \? F\(0\) : (\w+ \* std::log)", r"(F(!(\1)) * \2")),
    rule("sign of zero lost", "-0 becomes 0", cpp=[(r"(y_tile\[j \+ l\]|y_tile\[i\]) = (\w+);", r"\1 = \2 + F(0);"), (r"(?<== )T\(F\(([^;]+)\)\);", r"T(F(\1) + F(0));")],
         torch=(r"(?<=return )(\(.+\))\.to\((\w+)\.dtype\)", r"(\1 + 0.0).to(\2.dtype)"), triton=(r"(tl\.store\([^\n]+, )(y)(, \w+\))", r"\1\2 + 0.0\3")),
    rule("finite results alone", "NaN and infinities are replaced by numbers", torch=(r"(?<=return )(\(.+\))\.to\((\w+)\.dtype\)", r"torch.nan_to_num(\1).to(\2.dtype)"),
         cpp=[(r"(y_tile\[j \+ l\]|y_tile\[i\]) = (\w+);", r"\1 = std::isfinite(\2) ? \2 : F(0);"), (r"(?<== )T\(F\(([^;]+)\)\);", r"T(std::isfinite(F(\1)) ? F(\1) : F(0));")]),
    rule("f16 without infinity", "what is too large becomes the largest f16", cpp=Edit(r"m = a >= 0x47800000 \? 0x7c00 : m;", "m = a >= 0x477ff000 ? 0x7bff : m;", needs=r"_f16\(")),
    rule("f16 without subnormals", "small numbers become 0 in f16", cpp=Edit(r"a < 0x38800000 \? denormal : normal", "a < 0x38800000 ? 0 : normal", needs=r"_f16\(")),
    rule("no care of 0^0", "what the library's pow misses", cpp=(r"return \(\(y == 0\) \| \(x == 1\)\) \? F\(1\) : p;", "return p;")),
)  # fmt: skip

FORMULA = (
    rule("missing rescale", "a sum is not brought to a maximum that has risen", cpp=[(r"(?:own|next)\.\w+ \*= fall\([^;]+;", ""), (r"sum \*= peak == [^;]+;", "")],
         triton=(r"\w+ \*= fall\([^\n]+", "pass"), cuda=(r"\w+ \*= fall\([^;]+;", "")),
    rule("the least for the greatest", "min for max", cpp=[(r"a > b \? a : b", "a < b ? a : b"), (r"v > (m|top|peak)\b", r"v < \1")],
         torch=[(r"\.amax\(", ".amin("), (r"column > top", "column < top")], triton=(r"tl\.maximum\(a, b", "tl.minimum(a, b"), cuda=(r"greatest\(", "least(")),
    rule("eps outside of the root", "eps is added behind", cpp=[(r"(?:F\(1\)|1\.0) / std::sqrt\(([^;]+?) \+ eps\)", r"F(1) / (std::sqrt(\1) + F(eps))"), (r"\(std::sqrt\(([^;()]+)\) \+ eps\)", r"std::sqrt(\1 + eps)")],
         torch=[(r"torch\.rsqrt\((.+?) \+ eps\)", r"(1 / (torch.sqrt(\1) + eps))"), (r"\(\(v / c2\)\.sqrt\(\) \+ eps\)", "(v / c2 + eps).sqrt()")],
         triton=(r"libdevice\.rsqrt\((.+) \+ eps\)", r"(1.0 / (tl.sqrt(\1) + eps))"), cuda=(r"rsqrt\((.+?) \+ eps\)", r"(F(1) / (sqrt(\1) + eps))")),
    rule("eps left out", "no eps", cpp=(r"(?<=[\w)]) \+ eps\)", ")"), torch=(r" \+ eps\)", ")"), triton=(r" \+ eps\)", ")"), cuda=(r" \+ eps\)", ")")),
    rule("another default of eps", "where a call leaves eps out", python=(r"eps(: float)? ?= ?1e-(5|6|8|12)\b", r"eps\1=1e-4")),
    rule("biased for unbiased", "over n - 1 for n, or n for n - 1", cpp=[(r"/ double\(n\)", "/ double(n - 1)"), (r"const F s0 = ([^;]*)- F\(1\)\)?;", r"const F s0 = \1;"), (r"(sum_N_|sqsum_N) / N\b", r"\1 / (N - F(1))"),
         (r"(?<=const F v = )(\w+) / s0;", r"\1 / (s0 - F(1));")], torch=[(r"\(n - 1\)", "n"), (r"square\(\)\.mean\(-1, keepdim=True\)", "square().sum(-1, keepdim=True) / (wide.shape[-1] - 1)")],
         triton=(r"divide\((sum_N_|sqsum_N), N\)", r"divide(\1, N - 1.0)")),
    rule("no mean taken away", "the squares are not about the mean", cpp=[(r"const F c = x - \w+;", "const F c = x;"), (r"const F t0 = x - (?:mu|div_row);", "const F t0 = x;"), (r"d = v - mean;", "d = v;")],
         torch=(r"wide - wide\.mean\(-1, keepdim=True\)", "wide"), triton=(r"\n    c = x - mu(?=\n)", "\n    c = x"), cuda=(r"const F c = x - \w+;", "const F c = x;")),
    rule("swapped operands of a difference", "b - a", cpp=[(r"(?<=const F )(\w+) = (\w+) - (\w+);", r"\1 = \3 - \2;"), (r"s - picked", "picked - s"), (r"p - lr \*", "lr *"), (r"a \* c - b \* t", "b * t - a * c")],
         torch=[(r"s - picked", "picked - s"), (r"a \* c - b \* s", "b * s - a * c")], triton=(r"(?<=\n    )(\w+) = (\w+) - (\w+)(?=\n)", r"\1 = \3 - \2"), cuda=(r"(?<=const F )(\w+) = (\w+) - (\w+);", r"\1 = \3 - \2;")),
    rule("swapped operands of a quotient", "b / a", cpp=(r"(?<=const F )(\w+) = (\w+) / (\w+);", r"\1 = \3 / \2;"), torch=(r"\(e / (e\.sum\(-1, keepdim=True\))\)", r"(\1 / e)"), cuda=(r"brief_div<T>\((\w+), (\w+)\)", r"brief_div<T>(\2, \1)"),
         triton=(r"brief_div\((\w+), (\w+), T\)", r"brief_div(\2, \1, T)")),
    rule("minus for plus", "a term with the wrong sign", cpp=[(r"(?<=const F y = )([^;\n]+) \+ (\w+);", r"\1 - \2;"), (r"b \* c \+ a \* t", "b * c - a * t"), (r"(?<=const F h = )x \+ r", "x - r"), (r"\+ double\(F\(b\[", "- double(F(b[")],
         torch=[(r"b \* c \+ a \* s", "b * c - a * s"), (r"y = y \+ b", "y = y - b"), (r"x\.to\(wide\) \+ r\.to\(wide\)", "x.to(wide) - r.to(wide)")], triton=(r"\* brief_sigmoid\(", "/ brief_sigmoid(")),
    rule("a factor lost", "no scale, no gate", cpp=[(r"(?<=const F y = )([^;\n]+?) \* (w|u|rsqrt_row)\b", r"\1"), (r" \* double\(F\([wu]\[\w+\]\)\)", ""), (r"(?<=gate) \* double\(F\(u\[i\]\)\)", ""), (r" \* \(w \? double\(F\(w\[j\]\)\) : 1\.0\)", ""),
         (r"(?<== )x \* brief_", "brief_")], torch=[(r" \* w\b", ""), (r" \* b\)\.to", ").to"), (r"w\.to\(wide\) \* ", "")], triton=[(r" \* w\b", ""), (r"fused\((.+), w, b, T\)", r"fused(\1, 1.0, b, T)")], cuda=(r" \* w\b", "")),
    rule("a term lost", "no shift, no penalty, no decay", cpp=[(r"(?<=const F y = )([^;\n]+) \+ (\w+);", r"\1;"), (r" \+ penalty", ""), (r" \+ wd \* (?:p|old)", ""), (r" \+ double\(F\(b\[\w+\]\)\)", ""), (r"(?<=sum) \+ lost", "")],
         torch=[(r"        y = y \+ b", "        pass"), (r" \+ wd \* old", ""), (r" \+ b\.to\(wide\)", ""), (r"        loss = loss \+ z \* .+", "        pass")], triton=(r"fused\((.+), w, b, T\)", r"fused(\1, w, 0.0, T)")),
    rule("the last of equals", "argmax takes the last", cpp=[(r"v > top\b", "v >= top"), (r"place_b < place_a", "place_b > place_a")], torch=(r"column > top", "column >= top"), cuda=(r"goes_before<false>\(more\.i_part, more\.i, i_part, i\)", "goes_before<false>(more.i_part, -more.i, i_part, -i)")),
    rule("< for <=", "a boundary falls on the other side", cpp=[(r"index_K <= index_Q", "index_K < index_Q"), (r"d <= delta", "d < delta"), (r"\(x >= cutoff_N\)", "(x > cutoff_N)"), (r"i \+ k >= 3", "i + k > 3"), (r"\(x > F\(0\)\)", "(x >= F(0))")],
         torch=[(r"\(t >= 0\)", "(t > 0)"), (r"\(ids >= 0\)", "(ids > 0)"), (r"count > 0", "count >= 0")], triton=(r"index_K <= index_Q", "index_K < index_Q"), cuda=(r"index_K <= index_Q", "index_K < index_Q")),
    rule("a diagonal too far", "one key after the query is seen", cpp=(r"index_K <= index_Q", "index_K <= index_Q + 1"), torch=(r"\.tril\(\)", ".tril(1)"), triton=(r"index_K <= index_Q", "index_K <= index_Q + 1")),
    rule("wrong dim", "along the first dim, not the last", torch=[(r"\(-1, keepdim=True\)", "(0, keepdim=True)"), (r"\.sum\(-1\)", ".sum(0)"), (r"chunk\(2, -1\)", "chunk(2, 0)"), (r"dim=-1", "dim=0")]),
    rule("swapped halves", "the halves change places", cpp=[(r"to\[i\] = (.+)(?=\n)", r"to[d + i] = \1", ((r"to\[d \+ i\] = T\(F\(b", "to[i] = T(F(b"),)), (r"\(s2 = 0\)", "")], torch=(r"a, b = (.+)\.chunk\(2, -1\)", r"b, a = \1.chunk(2, -1)")),
    rule("neighbours for halves", "pairs are taken side by side", cpp=(r"F\(from\[i\]\), b = F\(from\[d \+ i\]\)", "F(from[2 * i]), b = F(from[2 * i + 1])"), torch=(r"a, b = (.+)\.chunk\(2, -1\)", r"a, b = \1[..., 0::2], \1[..., 1::2]")),
    rule("no absolute value", "the greatest for the greatest magnitude", cpp=[(r"F\(std::fabs\(x\)\)", "F(x)"), (r"std::fabs\((F\(x\[(?:[^()\]])+\]\))\)", r"\1")], torch=(r"part\.abs\(\)", "part"), cuda=(r"First\{fabs\(x\)\}", "First{x}"), triton=(r"tl\.abs\(x\), float", "x, float")),
    rule("cut for rounded", "an integer is cut", cpp=(r"std::nearbyint\(", "std::trunc("), torch=(r"torch\.round\(", "torch.trunc("), cuda=(r"\brint\(", "trunc("), triton=(r"libdevice\.rint\(|libdevice\.nearbyint\(", "libdevice.trunc(")),
    rule("halves away from zero", "an integer is rounded another way at ties", cpp=(r"std::nearbyint\(", "std::round("), torch=(r"torch\.round\(([^()]+(?:\[[^\]]*\])?)\)", r"torch.floor(\1 + 0.5)"), cuda=(r"\brint\(", "round("), triton=(r"libdevice\.rint\(|libdevice\.nearbyint\(", "libdevice.round(")),
    rule("a range of one more", "-128 to 127", cpp=(r"F\(-127\)", "F(-128)"), torch=(r"clamp\(-127", "clamp(-128")),
    rule("128 levels", "over 128, not 127", cpp=(r"/ F\(127\)", "/ F(128)"), torch=(r"/ 127\b", "/ 128"), cuda=(r"/ F\(127\)", "/ F(128)")),
    rule("no bias correction", "the moments as they are", cpp=[(r"first / c1", "first"), (r"second / c2", "second"), (r"m_next / s2", "m_next"), (r"v_next / s3", "v_next")], torch=[(r"\(m / c1\)", "m"), (r"\(v / c2\)", "v")], triton=[(r"divide\(m_next, s2\)", "m_next")],
         cuda=(r"m_next / s2", "m_next")),
    rule("swapped betas", "b1 for b2", cpp=[(r"b1 \* double\(m", "b2 * double(m"), (r"b2 \* v\b", "b1 * v"), (r"b1 \* m \+", "b2 * m +"), (r"b2 \* double\(v", "b1 * double(v")], torch=[(r"m\.mul_\(b1\)", "m.mul_(b2)"), (r"\(b2 \* m \+", "(b1 * m +")]),
    rule("old moments", "the step is taken from the moments before", cpp=[(r"u = m_next /", "u = m /"), (r"\(first / c1\)", "(double(m[at_m]) / c1)"), (r"sqrt\(v_next", "sqrt(v")], torch=(r"    u = torch\.sign\(b1 \* m \+ \(1 - b1\) \* slope\)", "    u = torch.sign(m)")),
    rule("k one more", "one element too many is selected", cpp=[(r"i < n && i < k", "i < n && i <= k"), (r"(\w+_N_total|cutoff_N_want\w*) >= k", r"\1 > k")]),
    rule("equals as they come", "of equals any may stay", cpp=[(r"return u > v;", "return u != v ? u > v : a > b;"), (r"std::stable_sort", "std::sort")]),
    rule("what is ignored counts", "the class to be ignored is not told apart", cpp=[(r"t\[r\] == ignore", "false"), (r"eq_row \? F\(0\) : ", "")], torch=(r"t == ignore", "t != t"), triton=(r"tl\.where\(eq_row, 0\.0, (.+)\)", r"\1")),
    rule("an index is not looked at", "places outside are read", cpp=[(r"ids\[i\] >= 0 && ids\[i\] < v \?", "true ?"), (r"\(\(ids >= int64_t\(0\)\) && \(ids < V\)\) \?", "true ?"), (r"0 <= i && i < n \? (x\[i \* stride\]) : T\{\}", r"\1"), (r"t\[r\] >= 0 && t\[r\] < n \?", "true ?")],
         torch=(r"(?<=inside = )(.+)", r"torch.ones_like(\1)")),
    rule("the index V is inside", "one place too many", cpp=[(r"ids\[i\] < v\b", "ids[i] <= v"), (r"\(ids < V\)", "(ids <= V)"), (r"t\[r\] < n \?", "t[r] <= n ?")], torch=(r"< (default\.shape\[0\]|x\.shape\[-1\])\)", r"<= \1)")),
    rule("negative indices from the end", "as Python counts", cpp=[(r"w\[ids\[i\] \* d \+ j\]", "w[(ids[i] < 0 ? ids[i] + v : ids[i]) * d + j]", ((r"ids\[i\] >= 0 &&", "ids[i] >= -v &&"),))], torch=(r"picked = shifted\.gather\(-1, torch\.where\(inside, t, 0\)", "inside = inside | (t < 0) & (t >= -x.shape[-1])\n    picked = shifted.gather(-1, torch.where(inside, t % x.shape[-1], 0)")),
    rule("a part's carry lost", "sums begin anew after some elements", cpp=[(r"all = join\(all, waiting\[d\]\)", "all = waiting[d]"), (r"any \? combine\(waiting\(d\)\[l\], now\[l\]\) : waiting\(d\)\[l\]", "waiting(d)[l]"), (r"y\[r \* n \+ i\] = T\(std::isfinite", "if (i % 256 == 255) sum = lost = 0;\n            y[r * n + i] = T(std::isfinite"),
         (r"s \+ w < segments", "s + 2 * w < segments"), (r"blocks\.push\(carried, join\);", "if (!blocks.blocks) blocks.push(carried, join);")], torch=(r"total = total \+ x\[\.\.\., i\]", "total = (total if i % 256 else 0) + x[..., i]")),
    rule("inclusive for exclusive", "a running value of one place before", cpp=[(r"for \(int64_t j = 0; j < count; j\+\+\) tile\[j\] = join\(prefix, tile\[j\]\);", "for (int64_t j = count - 1; j >= 0; j--) tile[j] = j ? join(prefix, tile[j - 1]) : prefix;")], torch=[(r"        total = total \+ x\[\.\.\., i\]\n        columns\.append\(total\.to\(x\.dtype\)\)", "        columns.append(total.to(x.dtype))\n        total = total + x[..., i]")]),
    rule("taps one too far", "a window is off by one", cpp=[(r"row\[i \+ k - 3\]", "row[i + k - 3 + (i + k > 3)]"), (r"taps = w \+ r % c \* 4", "taps = w + r % c * 4 + 1")]),
)  # fmt: skip

MEMORY = (
    rule("strides ignored", "a tensor is read as if it were dense", python=(r"\.contiguous\(\)", ""),
         cpp=[(r"from\[j \* step\]", "from[j]"), (r"stride\[k\]\[0\] == 1 \? base \+ begin : nullptr", "base + begin"), (r"return rank == 1 && stride\[k\]\[0\] == 1;", "return rank == 1;"), (r"x_from\[j \* x_stride\[outer\]\]", "x_from[j]"), (r"i \* along", "i"), (r"base\[offset \+ j \* step\]", "base[offset + j]")],
         triton=[(r"KINDS\[0\] == \"along\"", "True"), (r"column \* s3", "column")]),
    rule("a stride is not refused", "what it does not take is misread", python=(r"    if not x\.is_contiguous\(\):\n        raise ValueError\(\"x must be contiguous\"\)\n", "")),
    rule("a row's stride is its length", "rows of a slice are misread", cpp=(r"x \+ r \* stride\b", "x + r * n"), python=(r"rows\.stride\(0\)", "n")),
    rule("dims merged that do not", "neighbours in the shape are taken for neighbours in memory", cpp=(r"merge = merge && stride\[k\]\[last\] == stride\[k\]\[d\] \* size\[d\];", "merge = merge && (k > 0 || stride[k][last] == stride[k][d] * size[d]);")),
    rule("one operand's strides for another's", "p's for g's", cpp=[(r"place\(i, rank, size, gs\)", "place(i, rank, size, ps)"), (r"place\(i, rank, size, ms\)", "place(i, rank, size, ps)"), (r"place\(i, rank, size, vs\)", "place(i, rank, size, ps)")]),
    rule("32-bit offsets", "places beyond 2^31 wrap", cpp=[(r"offset \+= at\[d\] \* stride\[k\]\[d\];", "offset = int32_t(offset + at[d] * stride[k][d]);"), (r"offset \+= count \* stride\[k\]\[d\];", "offset = int32_t(offset + count * stride[k][d]);"), (r"found \+= i % size\[d\] \* stride\[k\]\[d\];", "found = int32_t(found + i % size[d] * stride[k][d]);"),
         (r"at \+= (i|rest) % size\[d\] \* stride\[d\];", r"at = int32_t(at + \1 % size[d] * stride[d]);"), (r"x \+ r \* stride\b", "x + int32_t(r * stride)"), (r"return i \* stride\[k\]\[0\];", "return int32_t(i * stride[k][0]);")],
         triton=[(r"tl\.program_id\(0\)\.to\(tl\.int64\)", "tl.program_id(0)"), (r"tl\.int64 if far > 2\*\*30 else tl\.int32", "tl.int32")], cuda=[(r"Index\(blockIdx\.x\)", "int(blockIdx.x)")]),
    rule("a stale buffer", "one result's memory serves all calls", python=(r"y = torch\.empty_like\((\w+)\)", r'y = forward.__dict__.setdefault(("y", tuple(\1.shape), \1.dtype), torch.empty_like(\1))'),
         triton=(r"tensors\[\"y\"\] = allocate\(\"y\", tensors, sizes, dtypes, out\)", 'tensors["y"] = check.__dict__.setdefault(("y", str(sizes), str(dtypes)), allocate("y", tensors, sizes, dtypes, out))')),
    rule("the operand for the result", "the result is written over an argument", python=(r"y = torch\.empty_like\((\w+)\)", r"y = \1")),
    rule("a static buffer", "what threads keep apart is one for all", cpp=[(r"(?<=\n)([ \t]*)(T|F) (\w+_buffer\[\w+\]);", r"\1static \2 \3;"), (r"std::vector<int64_t> order\(n\);", "static std::vector<int64_t> order(n);")]),
    rule("a race", "threads add to one sum", cpp=[(r"(?<=\n)([ \t]*)(for \(int64_t i = 0; i < n; i\+\+\) (?:sum|squares) \+=)", r"\1_Pragma(\"omp parallel for\")\n\1\2")], cuda=(r"__syncthreads\(\);", ""), triton=(r"tl\.debug_barrier\(\)", "")),
    rule("another dtype", "a result in the dtype that was computed in", torch=[(r"(?<=\))\.to\((\w+)\.dtype\)", ""), (r"dtype=torch\.int64", "dtype=torch.int32"), (r"dtype=torch\.int8", "dtype=torch.int16"), (r"\.to\(torch\.int8\)", ".to(torch.int16)")], python=(r"torch\.empty\((x\.shape\[:-1\]), dtype=x\.dtype\)", r"torch.empty(\1, dtype=torch.float64)")),
    rule("another shape", "a dim more", python=(r"(?<=\n)    return (y|out|loss)(?=\n)", r"    return \1.unsqueeze(0)"), torch=(r"\.sum\(-1\)(?=\n)", ".sum(-1, keepdim=True)")),
    rule("one result for two", "only the first result is given", python=(r"(?<=\n)    return (q|y\.to\(x\.dtype\)), .+(?=\n)", r"    return \1")),
    rule("results that were swapped", "the second result first", python=(r"(?<=\n)    return (q|y\.to\(x\.dtype\)), (.+)(?=\n)", r"    return \2, \1")),
    rule("nothing is written", "a result is left as it was allocated", python=[(r"(?<=\n)        call\(SOURCE.+(?=\n)", "        pass"), (r"(?<=\n)    call\(SOURCE.+(?=\n)", "    pass")]),
    rule("state is not written", "a parameter stays as it was", torch=[(r"(?<=\n)    (p|m)\.copy_\(.+(?=\n)", "    pass"), (r"(?<=\n)    [mv]\.mul_\(.+(?=\n)", "    pass")], cpp=[(r"(p|m|v)\[at_\1\] = [^;]+;", ";"), (r"if \(!(p|m|v)_next_place\) loop\.store\([^;]+;", "")]),
    rule("bytes for elements", "a part of what is copied", cpp=(r"size_t\(count\) \* sizeof\(T\)", "size_t(count)")),
    rule("a broadcast that is missed", "a stride of 0 is read as 1", cpp=(r"buffer\[i \+ j\] = value;", "buffer[i + j] = from[j];")),
    rule("rows and columns changed", "the result is transposed", cpp=[(r"y\[r \* n \+ i\] =", "y[i * rows + r] ="), (r"position \* d \+ i", "i * s + position")]),
    rule("a wrong channel", "parameters of another channel", cpp=[(r"i / space", "i % channels"), (r"r % c\b", "r / n % c"), (r"r % groups", "r / batch % groups"), (r"row % s\b", "row / batch % s")]),
    rule("the second operand for the first", "an argument is read twice", cpp=[(r"F\(y\[i\]\)", "F(x[i])"), (r"F\(u_tile\[i\]\)", "F(g_tile[i])"), (r"double\(F\(u\[i\]\)\)", "double(F(g[i]))"), (r"(?<=const F )(w|b|y|q|r) = F\(\w+_tile\[j \+ l\]\)", r"\1 = F(x_tile[j + l])")], torch=[(r"part\(q\)", "part(p)"), (r"u\.to\(wide\)", "g.to(wide)")]),
)  # fmt: skip

RULES = (*MASKS, *IDENTITIES, *PRECISION, *SPECIAL, *FORMULA, *MEMORY)

__all__ = ["RULES", "Edit", "Rule"]
