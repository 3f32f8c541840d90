// What a sum of squares about the mean of n elements gains where that moves: n times the square of how far (Chan, Golub and LeVeque).
template <typename F> __device__ inline F spread(F n, F sum, F other_n, F other_sum) {
    const F moved = n * squared(centre(sum, n) - centre(other_sum, other_n));
    return n > F(0) ? moved : F(0);
}
