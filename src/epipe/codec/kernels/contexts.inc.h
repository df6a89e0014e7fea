// Loops over bytes that every compiler vectorises by itself, written once and compiled for each instruction set: tokens.cpp has the
// baseline, avx2.cpp and avx512.cpp include them again. No include guard and no namespace: the including file provides both.
// NOLINTBEGIN(misc-definitions-in-headers)

// How many of the ascending limits a value reaches.
template <typename T, std::size_t kCount>
inline T count_reached(T value, const std::array<T, kCount>& limits) {
  T reached = 0;
  for (std::size_t i = 0; i < kCount; ++i) reached = static_cast<T>(reached + (value >= limits[i] ? 1 : 0));
  return reached;
}

void magnitudes_of(std::span<const std::uint8_t> tokens, std::uint8_t* __restrict out) {
  const std::uint8_t* const __restrict from = tokens.data();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<std::uint8_t>(from[i] < 2 * kMaxMagnitude ? from[i] : 2 * kMaxMagnitude);
    out[i] = static_cast<std::uint8_t>((token + 1U) >> 1U);
  }
}

void parent_levels(const ParentPlanes& parents, std::size_t n, std::uint8_t* __restrict out) {
  const std::uint8_t* const __restrict above = parents.above;
  const std::uint8_t* const __restrict left = parents.left;
  const std::uint8_t* const __restrict diagonal = parents.diagonal;
  const std::uint8_t* const __restrict above2 = parents.above2;
  const std::uint8_t* const __restrict left2 = parents.left2;
  for (std::size_t i = 0; i < n; ++i) {
    const auto sum = static_cast<std::uint8_t>(2 * (above[i] + left[i]) + diagonal[i] + above2[i] + left2[i]);
    out[i] = count_reached(sum, kParentLimits);
  }
}

void running_levels(const std::uint8_t* __restrict before, std::size_t n, std::uint16_t* __restrict means, std::uint8_t* __restrict out) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto mean = static_cast<std::uint16_t>(means[i] - (means[i] >> 3U) + 16 * before[i]);
    means[i] = mean;
    out[i] = static_cast<std::uint8_t>(1 + count_reached(mean, kRunningLimits));
  }
}

void neighbour_levels(const std::uint8_t* __restrict before, std::size_t n, std::uint8_t* __restrict out) {
  const auto level = [](int sum) { return static_cast<std::uint8_t>(1 + count_reached(static_cast<std::uint8_t>(sum), kNeighbourLimits)); };
  for (std::size_t i = 1; i + 1 < n; ++i) out[i] = level(2 * before[i] + before[i - 1] + before[i + 1]);
  if (n > 0) out[0] = level(2 * before[0] + (n > 1 ? before[1] : 0));
  if (n > 1) out[n - 1] = level(2 * before[n - 1] + before[n - 2]);
}

// NOLINTEND(misc-definitions-in-headers)
