// The greater of two; NaN if either is. Only the second, in a loop the next one, is tested for that: so no test waits for the step before.
template <typename T> inline T maximum(T a, T b) {
    const T greater = b > a ? b : a;
    return b != b ? b : greater;
}
