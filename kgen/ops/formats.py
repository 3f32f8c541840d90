"""The operators by which programs read and write floats of few bits: values to codes, and back.

A format's row in the table of dtypes (`kgen.types.Coding`) says all of it; here are the operators that follow for each, as rows like those
of the table of operators, which `lower.py` alone uses: `f8e4m3_code`, to nearest even; with `_saturate` what is too large becomes the
largest finite value (NaN stays NaN); with `_stochastic` the bits that are lost, as a fraction of 2^32, are added to 32 random
ones, and what overflows is added to the code; `f8e8m0_code_down` and `_up` are the powers of two below and above.
`f8e4m3_value` is the exact value of a code.  The 16-bit floats have them for their modes; without one, casts are the targets' own.

Each is a call of a function of a target's library with the format's numbers, but where a GPU has an instruction for it.
"""

from __future__ import annotations

from kgen.ops.row import Errors, Op, Spell
from kgen.types import DTYPES, DType

#: What may stand in the brackets of a cast, in the order in which names of operators have them.
MODES = ("saturate", "stochastic", "down", "up")

#: What an NVIDIA GPU converts itself: by format, the first architecture, the instruction, and beyond what all overflows if it may.
_HARDWARE = {"f8e4m3": (890, "e4m3x2", "464.0f"), "f8e5m2": (890, "e5m2x2", "61439.99609375f")}


def modes(dtype: DType) -> tuple[tuple[str, ...], ...]:
    """The modes in which a value may be cast to a dtype, none of them among these."""
    if dtype.coding is None:
        return ()
    if dtype.coding.exponents:
        return ((), ("down",), ("up",))
    return ((), ("saturate",), ("stochastic",), ("saturate", "stochastic"))


def code_name(dtype: DType, how: tuple[str, ...] = ()) -> str:
    """The operator that gives a value's code, in a mode."""
    return "_".join((dtype.name, "code", *how))


def value_name(dtype: DType) -> str:
    """The operator that gives a code's value."""
    return f"{dtype.name}_value"


def _constants(dtype: DType) -> str:
    assert dtype.coding is not None
    return ", ".join([str(dtype.digits), str(dtype.least), *(f"0x{n:02x}" for n in dtype.coding.numbers)])


def _function(dtype: DType, how: tuple[str, ...]) -> tuple[str, str]:
    """The library's function for codes in a mode, and its constants."""
    assert dtype.coding is not None
    if dtype.coding.exponents:
        return "exponent_code", str({(): 0, ("down",): -1, ("up",): 1}[how])
    name = "stochastic_code" if "stochastic" in how else "nearest_code"
    return name, f"{_constants(dtype)}, {int('saturate' in how)}"


def _c(dtype: DType, how: tuple[str, ...] | None, words: tuple[str, str, str]) -> Spell:
    """A function of C++ or CUDA, whose keyword and integer types `words` has: for codes in a mode, or (None) for values."""
    device, byte, word = words
    code = byte if dtype.bits <= 8 else word
    head = f"{device}inline "
    if how is None:
        name = value_name(dtype)
        made = "exponent_value(code)" if dtype.coding and dtype.coding.exponents else f"coded_value<{_constants(dtype)}>(code)"
        text = f"// The value of a code of {dtype.name}.\n{head}float {name}({code} code) {{ return {made}; }}"
        if device and dtype.name in _HARDWARE:
            text = _decoded(dtype, f"    return {made};")
        return Spell(f"{name}({{0}})", source=text)
    name = code_name(dtype, how)
    function, constants = _function(dtype, how)
    more, given = (", unsigned random", ", random") if "stochastic" in how else ("", "")
    body = [f"    return {code}({function}<{constants}>(narrowed(x){given}));"]
    if device and dtype.name in _HARDWARE and "stochastic" not in how:
        body = _instruction(dtype, how, body)
    about = f"// The code of x in {dtype.name}{_said(how)}."
    text = "\n".join([about, f"template <typename F> {head}{code} {name}(F x{more}) {{", *body, "}"])
    return Spell(f"{name}({_holes(how)})", source=text)


def _instruction(dtype: DType, how: tuple[str, ...], otherwise: list[str]) -> list[str]:
    """The code by a GPU's own instruction, which saturates, and has one NaN; on GPUs that lack it, `otherwise`."""
    assert dtype.coding is not None
    arch, instruction, end = _HARDWARE[dtype.name]
    over, nan, sign = (f"0x{n:02x}" for n in (dtype.coding.over, dtype.coding.nan, dtype.coding.sign))
    beyond = "" if "saturate" in how else f"\n        : fabsf(narrow) > {end} ? {over} | (__float_as_uint(narrow) >> 24 & {sign})"
    return [
        f"#if __CUDA_ARCH__ >= {arch}",
        "    const float narrow = narrowed(x);",
        "    unsigned short code;",
        f'    asm("cvt.rn.satfinite.{instruction}.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0f), "f"(narrow));',
        f"    return narrow != narrow ? {nan} | (__float_as_uint(narrow) >> 24 & {sign}){beyond} : code;",
        "#else", *otherwise, "#endif",
    ]  # fmt: skip


def _decoded(dtype: DType, otherwise: str) -> str:
    """CUDA's function that gives a code's value, by way of f16, which has all of them; on GPUs without the instruction, `otherwise`."""
    arch, instruction, _ = _HARDWARE[dtype.name]
    return f"""// The value of a code of {dtype.name}.
__device__ inline float {value_name(dtype)}(u8 code) {{
#if __CUDA_ARCH__ >= {arch}
    unsigned two = code;
    asm("{{ .reg .b16 low, high; mov.b32 {{low, high}}, %0; cvt.rn.f16x2.{instruction} %0, low; }}" : "+r"(two));
    f16 one;
    one.bits = u16(two);
    return one;
#else
{otherwise}
#endif
}}"""


def _pair(dtype: DType, how: tuple[str, ...]) -> Spell:
    """CUDA's function that makes the codes of two numbers, by the same instruction, which takes two."""
    assert dtype.coding is not None
    arch, instruction, _ = _HARDWARE[dtype.name]
    name, sign = code_name(dtype, how), dtype.coding.sign
    text = f"""// The codes of two numbers in {dtype.name}{_said(how)}; that of the first in the low byte.
// A NaN that was computed has no sign; of others it is kept.
template <bool COMPUTED> __device__ inline u16 {name}_pair(float a, float b) {{
#if __CUDA_ARCH__ >= {arch}
    u16 codes;
    asm("cvt.rn.satfinite.{instruction}.f32 %0, %1, %2;" : "=h"(codes) : "f"(b), "f"(a));
    if (COMPUTED) return codes;
    return codes | (__byte_perm(__float_as_uint(a), __float_as_uint(b), 0x0073) & 0x{sign:02x}{sign:02x});
#else
    return {name}(a) | {name}(b) << 8;
#endif
}}"""
    return Spell(f"{name}_pair({{0}}, {{1}})", source=text)


def _holes(how: tuple[str, ...]) -> str:
    """The operands of a pattern."""
    return "{0}, {1}" if "stochastic" in how else "{0}"


def _said(how: tuple[str, ...]) -> str:
    """What a comment says of a mode."""
    kind = ", the power of two below" if "down" in how else ", the power of two above" if "up" in how else ""
    kind = ", rounded up by chance" if "stochastic" in how else kind or ", to nearest even"
    return kind + ("; what is too large is the largest" if "saturate" in how else "")


def _triton(dtype: DType, how: tuple[str, ...] | None) -> Spell:
    """A function of Triton: for codes in a mode, or (None) for values."""
    head = "@triton.jit\ndef "
    if how is None:
        name = value_name(dtype)
        plain = dtype.coding is not None and dtype.coding.exponents
        body = "exponent_value(code)" if plain else f"coded_value(code, {_constants(dtype)})"
        text = f'{head}{name}(code):\n    """The value of a code of {dtype.name}."""\n    return {body}\n'
        return Spell(f"{name}({{0}})", source=text)
    name = code_name(dtype, how)
    function, constants = _function(dtype, how)
    more = ", random" if "stochastic" in how else ""
    cast = "tl.uint8" if dtype.bits <= 8 else "tl.uint16"
    text = f'{head}{name}(x{more}):\n    """The code of x in {dtype.name}{_said(how)}."""\n'
    text += f"    return {function}(narrowed(x){more}, {constants}).to({cast})\n"
    return Spell(f"{name}({_holes(how)})", source=text)


def _rows() -> dict[str, Op]:
    """The operators of every format, by name."""
    cpp, cuda = ("", "uint8_t", "uint16_t"), ("__device__ ", "u8", "u16")
    made = []
    for d in DTYPES.values():
        if d.coding is None:
            continue
        for how in modes(d):
            if how or d.coded:
                args = ("x", "bits") if "stochastic" in how else ("x",)
                made.append(_row(code_name(d, how), args, (8, 0), (_c(d, how, cpp), _c(d, how, cuda), _triton(d, how))))
        made.append(_row(value_name(d), ("code",), (4, 0), (_c(d, None, cpp), _c(d, None, cuda), _triton(d, None))))
    return {row.name: row for row in made}


def _by_chance(language: str) -> Spell:
    """A function that rounds to a dtype that is known where it is compiled, by chance where that has 16 bits."""
    f16, bf16 = (f"{_constants(DTYPES[name])}, {{}}" for name in ("f16", "bf16"))
    about = "rounded to T away from 0 with the probability that is left of a unit, by 32 random bits; to 32 bits and more to nearest"
    if language == "triton":
        text = f'''@triton.jit
def by_chance(x, random, T: tl.constexpr):
    """x {about}."""
    if T == tl.float16:
        return stochastic_code(narrowed(x), random, {f16.format(0)}).to(tl.uint16).to(T, bitcast=True)
    elif T == tl.bfloat16:
        return stochastic_code(narrowed(x), random, {bf16.format(0)}).to(tl.uint16).to(T, bitcast=True)
    else:
        return tl.where(random == random, x, x).to(T)
'''
        return Spell("by_chance({0}, {1}, {V})", source=text)
    device, word = ("__device__ ", "u16") if language == "cuda" else ("", "uint16_t")
    wide, told = "float(rounded) == 1", "        rounded.bits = 0x3f80;  // 1 in bf16\n"
    if language == "cuda":
        wide, told = "is_bf16<T>", ""
    text = f"""// x {about}.
template <typename T, typename F> {device}inline T by_chance(F x, unsigned random) {{
    if constexpr (sizeof(T) > 2) return T(x);
    else {{
        T rounded;
{told}        rounded.bits = {word}({wide} ? stochastic_code<{bf16.format(0)}>(narrowed(x), random)
            : stochastic_code<{f16.format(0)}>(narrowed(x), random));
        return rounded;
    }}
}}
"""
    return Spell("by_chance<{V}>({0}, {1})", source=text)


#: A cast to a dtype variable by chance: its result has that dtype.
BY_CHANCE = "by_chance"


def _row(name: str, args: tuple[str, ...], cost: tuple[int, int], spells: tuple[Spell, Spell, Spell]) -> Op:
    """One of them."""
    return Op(name, args, "code", "", (None,) * len(args), "", cost, *spells, host=lambda *xs: xs[0], errors=Errors(exact=True))


#: What each of them converts: a dtype, and in which mode to its codes (None: from these).
CONVERTS = {code_name(d, how): (d, how) for d in DTYPES.values() for how in modes(d)} | {
    value_name(d): (d, None) for d in DTYPES.values() if d.coding is not None
}
CODES = _rows()
#: What programs have and the language has not: of a dtype variable.
INNER = {BY_CHANCE: _row(BY_CHANCE, ("x", "bits"), (8, 0), (_by_chance("cpp"), _by_chance("cuda"), _by_chance("triton")))}
#: The functions of CUDA that make the codes of two values, by operator.
PAIRS = {code_name(DTYPES[name], how): _pair(DTYPES[name], how) for name in _HARDWARE for how in (("saturate",),)}
