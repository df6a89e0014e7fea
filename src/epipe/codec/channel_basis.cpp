#include "epipe/codec/channel_basis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/symmetric.h"

namespace epipe::codec {
namespace {

constexpr double kUnit = 128;            // an entry of 1
constexpr std::size_t kBasisAlign = 16;  // of the payload behind a basis
constexpr std::size_t kBasisHead = 4;
constexpr std::int64_t kPlaces = 4096;
constexpr double kValueWeight = 1.0 / 64;  // against differences: as many of the symbols are means of blocks

// Gauss and Jordan, with the largest pivot of each column.
Square inverse(Square m) {
  Square out = Square::identity(m.n);
  for (std::size_t column = 0; column < m.n; ++column) {
    std::size_t pivot = column;
    for (std::size_t i = column + 1; i < m.n; ++i) {
      if (std::abs(m(i, column)) > std::abs(m(pivot, column))) pivot = i;
    }
    const double factor = 1 / m(pivot, column);
    for (std::size_t j = 0; j < m.n; ++j) {
      std::swap(m(pivot, j), m(column, j));
      std::swap(out(pivot, j), out(column, j));
      m(column, j) *= factor;
      out(column, j) *= factor;
    }
    for (std::size_t i = 0; i < m.n; ++i) {
      if (i == column) continue;
      const double share = m(i, column);
      for (std::size_t j = 0; j < m.n; ++j) {
        m(i, j) -= share * m(column, j);
        out(i, j) -= share * out(column, j);
      }
    }
  }
  return out;
}

Square in_doubles(const ChannelBasis& basis) {
  Square own{{}, basis.channels()};
  for (const std::int8_t entry : basis.entries()) own.values.push_back(entry / kUnit);
  return own;
}

// Place i of `count` out of `all`: one in each of as many equal stretches, anywhere in it, so that no row or column of the maps is met more
// often than others.
std::int64_t spread(std::int64_t i, std::int64_t count, std::int64_t all) {
  const std::int64_t begin = i * all / count;
  const std::int64_t end = (i + 1) * all / count;
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
  const std::uint64_t fraction = (static_cast<std::uint64_t>(i) * kGolden) >> 32U;
  return begin + static_cast<std::int64_t>((fraction * static_cast<std::uint64_t>(end - begin)) >> 32U);
}

// sum += weight * a a^T, the places one after the other.
void add_moments(const torch::Tensor& rows, double weight, Square& sum) {
  const auto values = rows.to(torch::kCPU, torch::kFloat64).contiguous();
  const double* row = values.data_ptr<double>();
  for (std::int64_t place = 0; place < values.size(0); ++place, row += sum.n) {
    for (std::size_t i = 0; i < sum.n; ++i) {
      const double scaled = weight * row[i];
      for (std::size_t j = 0; j < sum.n; ++j) sum(i, j) += scaled * row[j];
    }
  }
}

}  // namespace

bool ChannelBasis::fits(const wire::TensorSpec& tensor) {
  return tensor.dims.size() == 4 && tensor.dims[1] >= 2 && static_cast<std::size_t>(tensor.dims[1]) <= kMostChannels && tensor.values() > 0;
}

ChannelBasis ChannelBasis::of_moments(std::vector<double> moments, std::size_t channels) {
  Square m{std::move(moments), channels};
  const Square axes = diagonalize(m);
  std::vector<std::size_t> order(channels);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return m(a, a) > m(b, b); });
  std::vector<std::int8_t> entries(channels * channels);
  for (std::size_t k = 0; k < channels; ++k) {
    for (std::size_t c = 0; c < channels; ++c) {
      entries[c * channels + k] = static_cast<std::int8_t>(std::clamp(std::round(kUnit * axes(c, order[k])), -127.0, 127.0));
    }
  }
  return {std::move(entries), channels};
}

std::vector<float> ChannelBasis::to_channels() const {
  std::vector<float> matrix;
  for (const std::int8_t entry : entries_) matrix.push_back(static_cast<float>(entry) / static_cast<float>(kUnit));
  return matrix;
}

std::vector<float> ChannelBasis::from_channels() const {
  const Square matrix = inverse(in_doubles(*this));
  return {matrix.values.begin(), matrix.values.end()};
}

double ChannelBasis::skew() const {
  const Square a = in_doubles(*this);
  Square products{std::vector<double>(a.values.size()), a.n};
  for (std::size_t i = 0; i < a.n; ++i) {
    for (std::size_t j = 0; j < a.n; ++j) {
      for (std::size_t c = 0; c < a.n; ++c) products(i, j) += a(c, i) * a(c, j);
    }
  }
  diagonalize(products);
  double least = products(0, 0);
  double most = products(0, 0);
  for (std::size_t i = 1; i < a.n; ++i) {
    least = std::min(least, products(i, i));
    most = std::max(most, products(i, i));
  }
  return most / least;
}

std::vector<double> channel_moments(const torch::Tensor& x) {
  const std::int64_t map = x.size(2) * x.size(3);
  const std::int64_t all = x.size(0) * map;
  const std::int64_t count = std::min(all, kPlaces);
  std::vector<std::int64_t> images;
  std::vector<std::int64_t> ones;
  std::vector<std::int64_t> others;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = spread(i, count, all);
    images.push_back(place / map);
    ones.push_back(place % map);
    others.push_back((place + map / 2) % map);
  }
  const auto there = [&](const std::vector<std::int64_t>& list) { return torch::tensor(list, torch::kInt64).to(x.device()); };
  const auto image = there(images);
  const auto maps = x.detach().reshape({x.size(0), x.size(1), map}).transpose(1, 2);  // [N, HW, C]
  const auto values = maps.index({image, there(ones)});
  const auto channels = static_cast<std::size_t>(x.size(1));
  Square sum{std::vector<double>(channels * channels), channels};
  add_moments(values, kValueWeight, sum);
  add_moments(values - maps.index({image, there(others)}), 0.5, sum);
  return sum.values;
}

std::size_t basis_bytes(std::size_t channels) { return (kBasisHead + channels * channels + kBasisAlign - 1) / kBasisAlign * kBasisAlign; }

void write_basis(const ChannelBasis& basis, Bytes& out) {
  const std::size_t start = out.size();
  append(out, PayloadKind::kKlt);
  append(out, static_cast<std::uint8_t>(basis.channels()));
  append(out, std::uint16_t{0});
  for (const std::int8_t entry : basis.entries()) append(out, entry);
  while (out.size() - start < basis_bytes(basis.channels())) append(out, std::uint8_t{0});
}

Result<ChannelBasis> read_basis(const wire::TensorSpec& tensor, ByteView first) {
  const auto bad = [](std::string message) { return Error{ErrorCode::kBadPayload, std::move(message)}; };
  if (!ChannelBasis::fits(tensor)) return bad("a KLT of channels, but this shape has none that can have one");
  const auto channels = static_cast<std::size_t>(tensor.dims[1]);
  if (first.size() < basis_bytes(channels)) return bad("the payload ends within the basis of its channels");
  if (load<std::uint8_t>(first, 1) != channels) {
    return bad(fmt::format("expected a basis of {} channels, got one of {}", channels, load<std::uint8_t>(first, 1)));
  }
  const std::size_t end = kBasisHead + channels * channels;
  if (load<std::uint16_t>(first, 2) != 0 || !all_zeros(first.subspan(end, basis_bytes(channels) - end))) {
    return bad("bytes beside the basis of channels must be 0");
  }
  std::vector<std::int8_t> entries;
  for (std::size_t i = 0; i < channels * channels; ++i) entries.push_back(load<std::int8_t>(first, kBasisHead + i));
  return ChannelBasis(std::move(entries), channels);
}

}  // namespace epipe::codec
