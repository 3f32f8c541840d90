// Whether a result of dtype T has 16 bits, and so takes functions in their brief forms: at most 2^-16 of the value off.
template <typename T> constexpr bool is_brief = sizeof(T) == 2;
