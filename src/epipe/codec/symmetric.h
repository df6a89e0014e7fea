#pragma once

#include <cstddef>
#include <vector>

// Eigenvectors of symmetric matrices. Not LibTorch's, because a basis, and with it a frame, must not depend on the LAPACK at hand.
namespace epipe::codec {

// A square matrix, row by row.
struct Square {
  std::vector<double> values;
  std::size_t n;

  static Square identity(std::size_t n) {
    Square own{std::vector<double>(n * n), n};
    for (std::size_t i = 0; i < n; ++i) own(i, i) = 1;
    return own;
  }
  double& operator()(std::size_t i, std::size_t j) { return values[i * n + j]; }
  double operator()(std::size_t i, std::size_t j) const { return values[i * n + j]; }
};

// Jacobi's method: afterwards the diagonal of m, which is symmetric, holds its eigenvalues. Gives the axes, one per column.
Square diagonalize(Square& m);

}  // namespace epipe::codec
