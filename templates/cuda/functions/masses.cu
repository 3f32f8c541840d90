// p * exp(a - top) + q * exp(b - top), top being the greater of a and b; of equal infinities exp(0).
template <typename F> __device__ inline F masses(F p, F a, F q, F b) {
    const F apart = a < b ? a - b : b - a, low = exp(a == b ? F(0) : apart);
    return a < b ? p * low + q : p + q * low;
}
