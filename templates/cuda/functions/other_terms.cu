// The term x(j) where key(j) is not the range's own; nothing elsewhere.
template <typename F, typename X, typename Key, typename Own> __device__ inline auto other_terms(const X& x, const Key& key, Own own) {
    return [=](i64 j) { return key(j) != own ? x(j) : F(); };
}
