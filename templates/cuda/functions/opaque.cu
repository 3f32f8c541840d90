// The value in 32 bits, where the optimiser does not see through it: nvcc 13.0 narrows the division and the right shift of an
// 8-bit value out of a vector to 16 bits, and takes its neighbour's bits for its own.
__device__ inline int opaque(int x) {
    asm("" : "+r"(x));
    return x;
}
