// The floor of x / y. Integers: by zero 0, and the least by -1 wraps.
template <typename T> inline T floor_divide(T x, T y) {
    if constexpr (std::is_floating_point_v<T>) {
        T r = std::fmod(x, y), q = (x - r) / y;
        q = r != 0 && (y < 0) != (r < 0) ? q - T(1) : q;
        T f = std::floor(q);
        f = q - f > T(0.5) ? f + T(1) : f;
        f = q == 0 ? std::copysign(T(0), x / y) : f;
        return y == 0 ? x / y : f;
    } else {
        if (y == 0) return 0;
        if (std::is_signed_v<T> && y == T(-1)) return T(0 - uint64_t(x));
        T q = x / y, r = x % y;
        return q - (r != 0 && (r < 0) != (y < 0));
    }
}
