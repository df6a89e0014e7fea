#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/base/thread_pool.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/wire/tensor_spec.h"

// A KLT of many features by a few Householder reflections: the first `count` coordinates become the strongest principal axes, and the
// others stay nearly what they were. A basis of that kind is orthonormal however coarsely its entries are rounded, so it travels in a few
// hundred bytes where a matrix would take tens of thousands.
namespace epipe::codec {

class Reflections {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kFewestFeatures = 32;
  static constexpr std::size_t kMostFeatures = 4096;
  static constexpr std::uint8_t kMostShift = 20;

  // Whether such a tensor can have them: [N, T, F] with features that are neither few nor too many.
  static bool fits(const wire::TensorSpec& tensor);
  // The most there may be: no more values than half of the tensor's.
  static std::size_t most(const wire::TensorSpec& tensor);

  // Reflection k has w(k, k) = 1 and w(k, c) = levels(k, c) / 2^shifts(k) for c > k; levels(k, c) = 0 for c <= k.
  Reflections(std::vector<std::int32_t> levels, std::vector<std::uint8_t> shifts, std::size_t features);

  std::size_t count() const { return shifts_.size(); }
  std::size_t features() const { return features_; }
  std::span<const std::int32_t> levels() const { return levels_; }  // [count, features]
  std::span<const std::uint8_t> shifts() const { return shifts_; }
  kernels::ReflectionRows rows() const { return {count(), length_, rows_.data(), scales_.data()}; }  // while this lives

  // Rows of features to axes, and back; `out` may be `x`.
  void forward(std::span<const float> x, const kernels::Kernels& kernels, ThreadPool* pool, std::span<float> out) const;
  void backward(std::span<const float> x, const kernels::Kernels& kernels, ThreadPool* pool, std::span<float> out) const;

  bool operator==(const Reflections& other) const { return levels_ == other.levels_ && shifts_ == other.shifts_; }

 private:
  void apply(bool backwards, std::span<const float> x, const kernels::Kernels& kernels, ThreadPool* pool, std::span<float> out) const;

  std::vector<std::int32_t> levels_;
  std::vector<std::uint8_t> shifts_;
  std::size_t features_;
  std::size_t length_;  // features, filled up
  std::vector<float> rows_, scales_;
};

// Strong directions in rows of features.
struct Axes {
  std::size_t features = 0;
  std::vector<double> vectors;   // [count, features], orthonormal, the strongest first
  std::vector<double> energies;  // sums of squares along them, in units of the mean square of a value times the rows
  std::size_t count() const { return energies.size(); }
};

// The rows that leading_axes() looks at.
std::vector<std::size_t> sampled_rows(std::size_t rows);
// The strongest axes of rows [n, features], not all zeros, found on some of them, or on those alone where a caller has no others. The same
// for any number of threads and instruction set.
Axes leading_axes(std::span<const float> rows, std::size_t features, std::size_t count, const kernels::Kernels& kernels, ThreadPool* pool);

// Reflections that put the first `count` axes first. A reflection's entries are as fine as pays beside symbols of this step, in units of
// the root mean square of a value, for so many rows.
Reflections reflections_to(const Axes& axes, std::size_t count, double step, std::size_t rows);

// As they travel in front of a coded payload, whose kind they give. docs/wire_format.md is normative.
std::size_t reflections_bytes(std::size_t count, std::size_t coded_bytes);
void write_reflections(const Reflections& reflections, const kernels::Kernels& kernels, Bytes& out);
struct ReadReflections {
  Reflections reflections;
  std::size_t bytes;
};
// `first` may be longer.
Result<ReadReflections> read_reflections(const wire::TensorSpec& tensor, ByteView first, const kernels::Kernels& kernels);

// Reads them as well, and remembers the last ones: an encoder sends the same bytes for many tensors. For any number of threads.
class ReflectionReader {
 public:
  struct Read {
    std::shared_ptr<const Reflections> reflections;  // others that it returned and the reader have them as well
    std::size_t bytes;
  };
  Result<Read> read(const wire::TensorSpec& tensor, ByteView first, const kernels::Kernels& kernels);

 private:
  std::mutex mutex_;  // guards the members below
  wire::TensorSpec tensor_;
  Bytes bytes_;
  std::shared_ptr<const Reflections> last_;
};

}  // namespace epipe::codec
