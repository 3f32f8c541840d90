// What `make` makes of the elements of some operands, once where a row stays on the chip: of few enough of them a thread in registers, else in
// the place of those operands, if nothing else reads them (FREE) and they have room for it, or in one of its OWN beside them.
template <typename Walk, typename V, bool FREE, bool OWN, typename Make, typename In> struct Lasting {
    static constexpr int BYTES = Walk::LANES * sizeof(V);
    static constexpr bool HOLDS = Walk::STAYS && Walk::IN_ONE == Walk::TAKEN && Walk::TAKEN * BYTES <= 128;
    static constexpr bool LAYS = Walk::STAYS && !HOLDS && FREE && In::ROOM >= BYTES, OWNS = OWN && Walk::SHARED && !HOLDS && !LAYS;
    static constexpr bool ONCE = HOLDS || LAYS || OWNS;
    struct Few { V at[Walk::LANES]; };
    Make make;
    In of;
    unsigned own;
    bool done = false;  // in an earlier reading
    Few held[HOLDS ? Walk::TAKEN : 1], now;

    template <typename W> __device__ Lasting(W& walk, Make make, In of) : make(make), of(of), own(walk.kept) {
        if constexpr (OWNS) walk.kept += walk.threads() * Walk::TAKEN * BYTES;
    }
    // The c-th 16 bytes of the v-th vector, in its own place.
    static constexpr int PART = BYTES < 16 ? BYTES : 16;
    __device__ unsigned char* part(int v, int c) const { return Walk::room_at(own + ((c * Walk::TAKEN + v) * Walk::threads() + threadIdx.x) * PART); }
    __device__ void took() { of.took(); }
    template <typename W, typename Chunk> __device__ void fetch(const W& walk, const Chunk& c, int v) {
        if (!ONCE || !done) of.fetch(walk, c, v);
    }
    template <typename W> __device__ void take(const W& walk, int v, int k) {
        if (ONCE && done) {
            of.passed(v, k);
            return again(walk, v, k);
        }
        of.take(walk, v, k);
        if constexpr (ONCE) {
            #pragma unroll
            for (int n = 0; n < Walk::LANES; n++) now.at[n] = of.one(make, k, n);
        }
        if constexpr (HOLDS) held[v] = now;
        if constexpr (LAYS) of.template lay<0, BYTES>(walk, v, reinterpret_cast<const unsigned char*>(&now));
        if constexpr (OWNS) {
            #pragma unroll
            for (int c = 0; c < BYTES / PART; c++) memcpy(part(v, c), reinterpret_cast<const unsigned char*>(&now) + c * PART, PART);
        }
    }
    // The same vector once more, in one reading or in a later one.
    template <typename W> __device__ void again(const W& walk, int v, int k) {
        if constexpr (HOLDS) {
            now = held[v];
        } else if constexpr (LAYS) {
            of.template lift<0, BYTES>(walk, v, reinterpret_cast<unsigned char*>(&now));
        } else if constexpr (OWNS) {
            #pragma unroll
            for (int c = 0; c < BYTES / PART; c++) memcpy(reinterpret_cast<unsigned char*>(&now) + c * PART, part(v, c), PART);
        } else {
            of.take(walk, v, k);
        }
    }
    __device__ V one(int v, int k) const {
        if constexpr (ONCE) return now.at[k];
        else return of.one(make, v, k);
    }
    template <typename W> __device__ V one_loose(const W& walk, int j) const { return of.loose(make, walk, j); }
    template <typename W, typename Chunk> __device__ void put(const W& walk, const Chunk& c, int k) { of.put(walk, c, k); }
    template <typename W> __device__ void put_loose(const W&, int) {}
};
template <typename Walk, typename V, bool FREE, bool OWN, typename Make, typename In>
__device__ inline Lasting<Walk, V, FREE, OWN, Make, In> lasting(Walk& walk, Make make, In of) { return {walk, make, of}; }
