// The greater of two; NaN if either is. As a loop's maximum of next and what it has, only one comparison waits for the step before.
template <typename T> inline T maximum(T a, T b) {
    const T greater = a > b ? a : b;
    return a != a ? a : greater;
}
