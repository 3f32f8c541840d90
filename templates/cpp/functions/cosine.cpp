// cos(x): of x itself g++ would join it with sin(x), and take neither of them side by side.
template <typename F> inline F cosine(F x) { return std::cos(x + F(0)); }
