// What a sum of squares about the mean of n elements gains where that moves: n times the square of how far (Chan, Golub and LeVeque).
template <typename F> inline F spread(F n, F sum, F other_n, F other_sum) {
    return n > F(0) ? n * squared(centre(sum, n) - centre(other_sum, other_n)) : F(0);
}
