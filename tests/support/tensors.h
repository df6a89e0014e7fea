#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

// Values that quantizers, selections and coders find hard, as plain vectors.
namespace epipe::testing {

struct NamedValues {
  std::string name;
  std::vector<float> values;
};

inline std::vector<float> normal_values(std::size_t n, std::uint32_t seed, float mean = 0, float deviation = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = normal(engine);
  return x;
}

inline std::vector<NamedValues> hard_values(std::size_t n, std::uint32_t seed) {
  std::mt19937 engine(seed);
  const auto normal = normal_values(n, seed);
  const auto mapped = [&](auto&& map) {
    std::vector<float> x = normal;
    for (std::size_t i = 0; i < n; ++i) x[i] = map(x[i], i);
    return x;
  };
  std::uniform_int_distribution<std::uint32_t> bits(0, 0x7f7fffff);  // every finite magnitude alike
  return {
      {"normal", normal},
      {"relu6", mapped([](float v, std::size_t) { return std::clamp(2 * v, 0.0F, 6.0F); })},
      {"constant", mapped([](float, std::size_t) { return -3.25F; })},
      {"zeros of both signs", mapped([](float, std::size_t i) { return i % 3 == 0 ? -0.0F : 0.0F; })},
      {"one huge among zeros", mapped([n](float, std::size_t i) { return i == n / 2 ? 1e30F : 0.0F; })},
      {"denormals", mapped([](float v, std::size_t) { return v * 1e-42F; })},
      {"far from zero", mapped([](float v, std::size_t) { return 1000 + v * 1e-3F; })},
      {"alternating signs", mapped([](float, std::size_t i) { return i % 2 == 0 ? 1.0F : -1.0F; })},
      {"heavy tails", mapped([](float v, std::size_t) { return v * v * v * v * v; })},
      {"ascending", mapped([](float, std::size_t i) { return static_cast<float>(i); })},
      {"descending", mapped([](float, std::size_t i) { return -static_cast<float>(i); })},
      {"few distinct", mapped([](float v, std::size_t) { return std::round(v); })},
      {"sparse", mapped([](float v, std::size_t i) { return i % 97 == 0 ? v : 0.0F; })},
      {"any magnitude up to 2^63", mapped([&](float v, std::size_t) {
         const float magnitude = std::ldexp(1 + std::abs(v), static_cast<int>(bits(engine) >> 23) / 2 - 64);
         return v < 0 ? -magnitude : magnitude;
       })},
  };
}

}  // namespace epipe::testing
