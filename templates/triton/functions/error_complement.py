@triton.jit
def error_complement(x):
    """erfc(x) as exp(-x^2), all of its digits, times a polynomial in t = 1 / (1 + 0.36 |x|) (minimax, 2^-24.4 off); 0 beyond 10.1."""
    if x.dtype == tl.float32:
        a = tl.minimum(tl.abs(x), 10.1, propagate_nan=tl.PropagateNan.ALL)
        d = tl.fma(a, 0.36, 1.0)
        t = inverse(d)
        off = tl.fma(t * -1.0, tl.fma(a, 0.36, 1.0 - d), tl.fma(d * -1.0, t, 1.0))  # of t, relatively
        s = a * a
        u = s * -1.442695  # exp(-a^2) = 2^u exp(rest); log(2) in two parts
        rest = tl.fma(u, 1.9046542e-9, tl.fma(a * -1.0, a, s)) + tl.fma(u, -0.6931472, s * -1.0)
        p = polynomial(t, (0.057070687, -0.31090868, 0.55799079, -0.36462641, 0.36650845, 0.082992293, 0.2065819, 0.20118792, 0.20320301))
        y = tl.exp2(u) * (p * t)
        y = tl.fma(y, tl.fma(off, tl.fma(t, 2.1, 1.0), rest), y)  # 1 + 2.1 t: d log(p t) / d log(t), about
        return tl.where(x < 0.0, 2.0 - y, y)
    else:
        return libdevice.erfc(x)
