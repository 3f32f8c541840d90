"""Kernels that reduce in many ways: each stands for a shape of program that a target's schedules must cover."""

PROGRAMS = {
    "two directions": "two(x: T[M, N]) -> y: T[M, N]\n\ny = x / (1 + sum[M](x^2)) / (1 + sum[N](x^2))",
    "loss and its mean": (
        "ce(x: T[..., V], t: i64[...], ignore: int = -100) -> (loss: f32[...], m: f32[])\n\n"
        "l = logsumexp[V](x) - pick[V](x, t)\nloss = l if t != ignore else 0\nm = mean[...](loss)"
    ),
    "embedding": "emb(w: T[V, D], t: i64[...]) -> y: T[..., D]\n\ny = pick[V](w, t)",
    "picked elements are reduced": (
        "g(x: T[..., N], t: i32[..., N], w: T[V]) -> y: T[..., N]\n\nz = x + pick[V](w, t)\ny = z / (1 + sum[N](z^2))"
    ),
    "pick of a pick": "pp(x: T[A, B, C], t: i64[A], u: i64[A]) -> y: T[A]\n\ny = pick[C](pick[B](x, t), u)",
    "pick of a sum": "po(x: T[M, N], t: i64[K]) -> y: T[K]\n\ny = pick[N](sum[M](x), t)",
    "pick of a sum at another's place": "pa(x: T[D, N]) -> y: T[]\n\ny = pick[D](sum[N](x), argmax[N](prod[D](x)))",
    "pick of an expression": "pe(x: T[..., N], t: u8[...]) -> y: T[...]\n\ny = pick[N](log_softmax[N](x), t)",
    "place in a matrix": "am(x: T[M, N]) -> (i: i64[], j: i64[M])\n\ni = argmax[M, N](x)\nj = argmin[N](x)",
    "place among all": "aa(x: T[..., N]) -> i: i64[]\n\ni = argmin[..., N](x)",
    "integers and bools": (
        "sums(x: f32[M, N], k: i32[M, N]) -> (a: f32[N], b: i64[], c: bool[M], d: f32[], e: i32[N], f: i64[M])\n\n"
        "a = sum[M](x)\nb = sum[M, N](k)\nc = any[N](k > 3)\nd = prod[M, N](x)\ne = max[M](k)\nf = sum[N](k % 2 == 0)"
    ),
    "normed over the outside": (
        "bn(x: T[B, C, S], eps: float = 1e-5) -> y: T[B, C, S]\n\nc = x - mean[B, S](x)\ny = c * rsqrt(mean[B, S](c^2) + eps)"
    ),
    "in place with a row's norm": "st(p: f32[M, N], g: f32[M, N]) -> (p': f32[M, N], n: f32[M])\n\nn = sqrt(sum[N](g^2))\np' = p - g / (1 + n)",
    "in place by another direction": "sd(p: f32[M, N]) -> (p': f32[M, N])\n\np' = p - max[M](p) + min[N](p)",
    "rows that an operand lacks": "lc(x: T[...], n: T[..., N], w: f32[N]) -> y: T[...]\n\ny = x * sum[N](n * w)",
    "several levels": (
        "lv(x: T[..., N]) -> (y: T[..., N], k: f32[...])\n\n"
        "a = x - mean[N](x)\nb = a / (1 + max[N](abs(a)))\nk = sum[N](b^2)\ny = exp(b - max[N](b)) * rsqrt(1 + k)"
    ),
    "picked beside its tensor": "pb(p: T[M], t: i64[]) -> (a: T[M], b: f32[])\n\nb = pick[M](p, t)\na = tanh(b) * p",
    "pick of a sum beside its dims": (
        "ps(x: f32[..., M, N, P], t: i64[..., N, P]) -> y: bool[N]\n\n"
        "v = exp(-abs(pick[M](sum[..., N](x), t))) + x\ny = all[..., P, M](v > 0)"
    ),
    "positions count": "cm(s: T[..., Q, K]) -> y: T[..., Q, K]\n\nz = s if index[K] <= index[Q] else -inf\ny = softmax[K](z)",
    "two dtypes": "td(x: T[..., N], y: U[..., N]) -> (d: f64[...], m: T[...])\n\nd = f64(sum[N](x * y))\nm = T(max[N](min(x, y)))",
    "mean over leading dims too": "ml(x: T[..., M, N]) -> y: f32[M]\n\ny = mean[..., N](abs(x))",
    "in the dtype computed in": (
        "cd(x: T[..., N], r: T32[...], d: T[..., N], w: T32[N]) -> (dx: T[..., N], dw: T32[N], n: T32[...], w': T32[N])\n\n"
        "g = d * r\ndx = g - x * mean[N](g * x)\ndw = sum[...](x * g)\nn = T32(sum[N](x * d)) / size[...](x)\nw' = w * 0.5 + max[...](x)"
    ),
    "weighted sums about a maximum": (
        "wm(x: T[..., N], v: T[..., N], w: T[N]) -> (a: T[...], h: T32[...], q: T32[...])\n\n"
        "z = x - max[N](x)\ne = exp(z)\ns = sum[N](e)\na = sum[N](e * v) / s\nh = log(s) - sum[N](e * z) / s\nq = sum[N](e * v * w)"
    ),
    "squares about two means": (
        "sm(x: T[..., N], w: T[N]) -> (s: T[...], y: T[..., N])\n\n"
        "c = x - mean[N](x)\nd = x * w - mean[N](x * w)\ns = sum[N](c^2) / (N - 1)\ny = c * rsqrt(mean[N](d^2) + 0.001)"
    ),
    "all and each": "ae(x: T[...], y: T[...]) -> (d: T[...], m: f32[])\n\nd = (x - y)^2\nm = mean[...](d)",
}
