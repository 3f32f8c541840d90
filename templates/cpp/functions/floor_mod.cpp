// x - y * floor(x / y), with the sign of y. Integers: by zero x.
template <typename T> inline T floor_mod(T x, T y) {
    if constexpr (std::is_floating_point_v<T>) {
        T r = std::fmod(x, y);
        return r != 0 && (y < 0) != (r < 0) ? r + y : r;
    } else {
        if (y == 0) return x;
        if (std::is_signed_v<T> && y == T(-1)) return 0;
        T r = x % y;
        return r != 0 && (r < 0) != (y < 0) ? r + y : r;
    }
}
