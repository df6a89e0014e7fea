#include "epipe/codec/symmetric.h"

#include <cmath>

namespace epipe::codec {
namespace {

// Turns rows p and q, and columns p and q, so that entry (p, q) of a symmetric matrix becomes 0; and columns of `axes` with them.
void rotate(Square& m, Square& axes, std::size_t p, std::size_t q) {
  const double theta = (m(q, q) - m(p, p)) / (2 * m(p, q));
  const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1);
  const double s = t * c;
  for (std::size_t i = 0; i < m.n; ++i) {
    const double a = m(i, p);
    const double b = m(i, q);
    m(i, p) = c * a - s * b;
    m(i, q) = s * a + c * b;
  }
  for (std::size_t i = 0; i < m.n; ++i) {
    const double a = m(p, i);
    const double b = m(q, i);
    m(p, i) = c * a - s * b;
    m(q, i) = s * a + c * b;
  }
  for (std::size_t i = 0; i < m.n; ++i) {
    const double a = axes(i, p);
    const double b = axes(i, q);
    axes(i, p) = c * a - s * b;
    axes(i, q) = s * a + c * b;
  }
}

}  // namespace

Square diagonalize(Square& m) {
  constexpr int kMostSweeps = 30;
  constexpr double kSmall = 1e-20;  // of the square of the trace
  Square axes = Square::identity(m.n);
  double trace = 0;
  for (std::size_t i = 0; i < m.n; ++i) trace += m(i, i);
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double rest = 0;
    for (std::size_t p = 0; p < m.n; ++p) {
      for (std::size_t q = p + 1; q < m.n; ++q) rest += m(p, q) * m(p, q);
    }
    if (!(rest > kSmall * trace * trace)) break;
    for (std::size_t p = 0; p < m.n; ++p) {
      for (std::size_t q = p + 1; q < m.n; ++q) {
        if (m(p, q) != 0) rotate(m, axes, p, q);
      }
    }
  }
  return axes;
}

}  // namespace epipe::codec
