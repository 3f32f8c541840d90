// The sum and the square of x, rounded once.
template <typename F> __device__ inline F squared_onto(F sum, F x) { return multiply_add(x, x, sum); }
