// Whether a dtype of 16 bits is bf16.
template <typename T> constexpr bool is_bf16 = false;
template <> constexpr bool is_bf16<bf16> = true;
