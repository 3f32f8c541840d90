// Whether a result of dtype T has so few digits that rough forms will do.
template <typename T> constexpr bool is_rough = false;
template <> constexpr bool is_rough<bf16> = true;
