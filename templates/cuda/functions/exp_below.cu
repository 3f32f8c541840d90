// exp(x) for x <= 0, as a term of a sum whose greatest term is 1: a float's may be 2 + |x| units in the last place off, and 0
// below 2^-126: at most 2.4 units of that 1.
__device__ inline double exp_below(double x) { return exp(x); }
__device__ inline float exp_below(float x) { return power_of_two(x * 1.442695f); }
