// x to the power y.
__device__ inline float power(float x, float y) { return powf(x, y); }
__device__ inline double power(double x, double y) { return pow(x, y); }
