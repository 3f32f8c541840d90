// The values of COUNT neighbours in registers; those that are true or false as the bits of one.
template <typename V, int COUNT> struct Remembered {
    V at[COUNT];
    __device__ void keep(const V (&values)[COUNT]) {
        #pragma unroll
        for (int n = 0; n < COUNT; n++) at[n] = values[n];
    }
    __device__ V value(int n) const { return at[n]; }
};
template <int COUNT> struct Remembered<bool, COUNT> {
    unsigned bits;
    __device__ void keep(const bool (&values)[COUNT]) {
        bits = 0;
        #pragma unroll
        for (int n = 0; n < COUNT; n++) bits |= unsigned(values[n]) << n;
    }
    __device__ bool value(int n) const { return bits >> n & 1; }
};
// What `make` makes of the elements of some operands: of a row that stays on the chip, and of few enough of them a thread, once.
template <typename Walk, typename V, typename Make, typename In> struct Repeated {
    static constexpr bool HOLDS = Walk::STAYS && Walk::IN_ONE == Walk::TAKEN && Walk::TAKEN * Walk::LANES * sizeof(V) <= 128;
    Make make;
    In of;
    bool done;  // in an earlier reading
    Remembered<V, Walk::LANES> held[HOLDS ? Walk::TAKEN : 1];
    V now[Walk::LANES];

    template <typename W, typename Chunk> __device__ void fetch(const W& walk, const Chunk& c, int v) {
        if (!HOLDS || !done) of.fetch(walk, c, v);
    }
    template <typename W> __device__ void take(const W& walk, int v, int k) {
        if (HOLDS && done) return again(walk, v, k);
        of.take(walk, v, k);
        #pragma unroll
        for (int n = 0; n < Walk::LANES; n++) now[n] = of.one(make, k, n);
        if constexpr (HOLDS) held[v].keep(now);
    }
    // The same vector once more, in one reading or in a later one.
    template <typename W> __device__ void again(const W& walk, int v, int k) {
        if constexpr (HOLDS) {
            #pragma unroll
            for (int n = 0; n < Walk::LANES; n++) now[n] = held[v].value(n);
        } else {
            take(walk, v, k);
        }
    }
    __device__ V one(int, int k) const { return now[k]; }
    template <typename W> __device__ V one_loose(const W& walk, int j) const { return of.loose(make, walk, j); }
    template <typename W, typename Chunk> __device__ void put(const W&, const Chunk&, int) {}
    template <typename W> __device__ void put_loose(const W&, int) {}
};
template <typename Walk, typename V, typename Make, typename In> __device__ inline Repeated<Walk, V, Make, In> repeated(Make make, In of) {
    return {make, of, false, {}, {}};
}
