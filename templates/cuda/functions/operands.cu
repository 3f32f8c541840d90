// Operands along a row, and what `make` makes of an element of each.
template <typename... In> struct Operands {
    template <typename Walk, typename Chunk> __device__ void fetch(const Walk&, const Chunk&, int) {}
    template <typename Walk> __device__ void take(const Walk&, int, int) {}
    template <typename Make, typename... X> __device__ static auto one(const Make& make, int, int, X... x) { return make(x...); }
    template <typename Make, typename Walk, typename... X> __device__ static auto loose(const Make& make, const Walk&, int, X... x) { return make(x...); }
    template <typename Make, typename Walk, typename I, typename... X> __device__ static auto at(const Make& make, const Walk&, I, X... x) { return make(x...); }
};
template <typename First, typename... More> struct Operands<First, More...> {
    First& first;
    Operands<More...> more;

    template <typename Walk, typename Chunk> __device__ void fetch(const Walk& walk, const Chunk& c, int v) {
        first.fetch(walk, c, v);
        more.fetch(walk, c, v);
    }
    template <typename Walk> __device__ void take(const Walk& walk, int v, int k) {
        first.take(walk, v, k);
        more.take(walk, v, k);
    }
    template <typename Make, typename... X> __device__ auto one(const Make& make, int v, int k, X... x) const {
        return more.one(make, v, k, x..., first.one(v, k));
    }
    template <typename Make, typename Walk, typename... X> __device__ auto loose(const Make& make, const Walk& walk, int j, X... x) const {
        return more.loose(make, walk, j, x..., first.one_loose(walk, j));
    }
    template <typename Make, typename Walk, typename I, typename... X> __device__ auto at(const Make& make, const Walk& walk, I i, X... x) const {
        return more.at(make, walk, i, x..., first.one_at(walk, i));
    }
};
__device__ inline Operands<> operands() { return {}; }
template <typename First, typename... More> __device__ inline Operands<First, More...> operands(First& first, More&... more) {
    return {first, operands(more...)};
}
