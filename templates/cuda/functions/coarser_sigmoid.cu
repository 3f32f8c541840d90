// 1 / (1 + exp(-x)) by the hardware's tanh, 2^-11.9 off: small ones lose their digits.
__device__ inline float coarser_sigmoid(float x) { return __fmaf_rn(rougher_tanh(0.5f * x), 0.5f, 0.5f); }
