// What `use` does with a divisor of numbers that have the digits of T: it is for one that is plain, with which nothing leaves the normal
// numbers before the quotient does, and for others.
template <typename T, typename Use> __device__ inline void dividing(float y, Use use) {
    auto by = divisor<T>(y);
    if (is_brief<T> && 0x1p-96f < fabsf(y) && fabsf(y) < 0x1p96f) {
        by.high *= by.scale;
        by.low *= by.scale;
        by.plain = true;
        use(by);
    } else {
        by.plain = false;
        use(by);
    }
}
template <typename T, typename Use> __device__ inline void dividing(double y, Use use) { use(y); }
