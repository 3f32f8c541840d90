// log|gamma(x)|; a float's by way of double, for CUDA's own loses its digits between -11 and -2.26.
__device__ inline double log_gamma(double x) { return lgamma(x); }
__device__ inline float log_gamma(float x) { return float(lgamma(double(x))); }
