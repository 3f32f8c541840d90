// The term x(j) where key(j) is not the range's own; nothing elsewhere.
template <typename F, typename X, typename Key, typename Own> inline auto other_terms(const X& x, const Key& key, Own own) {
    return [=](int64_t j) { return key(j) != own ? x(j) : F(); };
}
