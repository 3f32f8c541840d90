// The bytes of a vector of an operand that has a place for it in shared memory.
template <typename In> __device__ constexpr auto room_of(int) -> decltype(In::HELD == 2 ? int(In::BYTES) : 0) { return In::HELD == 2 ? int(In::BYTES) : 0; }
template <typename In> __device__ constexpr int room_of(long) { return 0; }
// Operands along a row, and what `make` makes of an element of each.
template <typename... In> struct Operands {
    static constexpr int ROOM = 0;
    __device__ void took() {}
    __device__ void passed(int, int) {}
    template <typename Walk, typename Chunk> __device__ void put(const Walk&, const Chunk&, int) {}
    template <int FROM, int BYTES, typename Walk> __device__ void lay(const Walk&, int, const unsigned char*) const {}
    template <int FROM, int BYTES, typename Walk> __device__ void lift(const Walk&, int, unsigned char*) const {}
    template <typename Walk, typename Chunk> __device__ void fetch(const Walk&, const Chunk&, int) {}
    template <typename Walk> __device__ void take(const Walk&, int, int) {}
    template <typename Make, typename... X> __device__ static auto one(const Make& make, int, int, X... x) { return make(x...); }
    template <typename Make, typename Walk, typename... X> __device__ static auto loose(const Make& make, const Walk&, int, X... x) { return make(x...); }
    template <typename Make, typename Walk, typename I, typename... X> __device__ static auto at(const Make& make, const Walk&, I, X... x) { return make(x...); }
};
template <typename First, typename... More> struct Operands<First, More...> {
    static constexpr int OWN = room_of<First>(0), ROOM = OWN + Operands<More...>::ROOM;
    First& first;
    Operands<More...> more;

    __device__ void took() {
        mark(first, 0);
        more.took();
    }
    __device__ void passed(int v, int k) {
        pass(first, v, k, 0);
        more.passed(v, k);
    }
    template <typename Walk, typename Chunk> __device__ void put(const Walk& walk, const Chunk& c, int k) {
        first.put(walk, c, k);
        more.put(walk, c, k);
    }
    // Other bytes in the places of vectors, from byte FROM of so many on.
    template <int FROM, int BYTES, typename Walk> __device__ void lay(const Walk& walk, int v, const unsigned char* bytes) const {
        constexpr int SIZE = OWN < BYTES - FROM ? OWN : BYTES - FROM;
        if constexpr (SIZE > 0) first.template lend<SIZE>(walk, v, bytes + FROM);
        more.template lay<FROM + SIZE, BYTES>(walk, v, bytes);
    }
    template <int FROM, int BYTES, typename Walk> __device__ void lift(const Walk& walk, int v, unsigned char* bytes) const {
        constexpr int SIZE = OWN < BYTES - FROM ? OWN : BYTES - FROM;
        if constexpr (SIZE > 0) first.template lent<SIZE>(walk, v, bytes + FROM);
        more.template lift<FROM + SIZE, BYTES>(walk, v, bytes);
    }
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
