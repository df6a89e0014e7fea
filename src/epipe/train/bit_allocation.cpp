#include "epipe/train/bit_allocation.h"

#include <algorithm>
#include <cmath>

namespace epipe::train {
namespace {

constexpr int kPerOctave = 16;  // rates to choose from
constexpr double kLeastError = 1e-12;
constexpr double kMostPrice = 1e30;  // bits for a unit of harm
constexpr int kHalvings = 200;

// Minimizes the Lagrangian: the bits plus the harm times its price.
double cheapest(const RateChoice& choice, double price) {
  const double low = std::log2(choice.curve.rates.front());
  const double high = std::log2(choice.curve.rates.back());
  const int count = std::max(1, static_cast<int>(std::ceil((high - low) * kPerOctave)));
  double best = choice.curve.rates.front();
  double least = INFINITY;
  for (int i = 0; i <= count; ++i) {
    const double rate = std::exp2(low + (high - low) * i / count);
    const double cost = choice.values * rate + price * choice.harm_at(rate);
    if (cost < least) {
      least = cost;
      best = rate;
    }
  }
  return best;
}

struct Allocation {
  std::vector<double> rates;
  double harm = 0;
};

Allocation at_price(const std::vector<RateChoice>& choices, double price) {
  Allocation all;
  for (const RateChoice& choice : choices) {
    all.rates.push_back(cheapest(choice, price));
    all.harm += choice.harm_at(all.rates.back());
  }
  return all;
}

}  // namespace

double RateCurve::error_at(double rate) const {
  if (rate <= rates.front()) return errors.front();
  if (rate >= rates.back()) return errors.back();
  const auto after = static_cast<std::size_t>(std::upper_bound(rates.begin(), rates.end(), rate) - rates.begin());
  const double share = std::log(rate / rates[after - 1]) / std::log(rates[after] / rates[after - 1]);
  const double before = std::log(std::max(kLeastError, errors[after - 1]));
  return std::exp(before + share * (std::log(std::max(kLeastError, errors[after])) - before));
}

RateCurve RateCurve::within(double most) const {
  const auto first =
      static_cast<std::size_t>(std::find_if(errors.begin(), errors.end(), [&](double e) { return e <= most; }) - errors.begin());
  if (first == 0) return *this;
  if (first == errors.size()) return {{rates.back()}, {errors.back()}};
  const auto log_of = [&](std::size_t i) { return std::log(std::max(kLeastError, errors[i])); };
  const double share = (std::log(std::max(kLeastError, most)) - log_of(first - 1)) / (log_of(first) - log_of(first - 1));
  const auto next = static_cast<std::ptrdiff_t>(first);
  RateCurve part{{rates[first - 1] * std::pow(rates[first] / rates[first - 1], share)}, {most}};
  part.rates.insert(part.rates.end(), rates.begin() + next, rates.end());
  part.errors.insert(part.errors.end(), errors.begin() + next, errors.end());
  return part;
}

RateCurve RateCurve::from(double rate) const {
  if (rate <= rates.front()) return *this;
  const auto next = std::upper_bound(rates.begin(), rates.end(), rate) - rates.begin();
  RateCurve part{{std::min(rate, rates.back())}, {error_at(rate)}};
  part.rates.insert(part.rates.end(), rates.begin() + next, rates.end());
  part.errors.insert(part.errors.end(), errors.begin() + next, errors.end());
  return part;
}

RateCurve RateCurve::until(double rate) const {
  const auto kept = std::max<std::ptrdiff_t>(1, std::upper_bound(rates.begin(), rates.end(), rate) - rates.begin());
  return {{rates.begin(), rates.begin() + kept}, {errors.begin(), errors.begin() + kept}};
}

// Harm falls as its price rises: halve the interval of prices, in octaves.
std::vector<double> allocate_bits(const std::vector<RateChoice>& choices, double most) {
  Allocation safe = at_price(choices, kMostPrice);
  double low = -std::log2(kMostPrice);
  double high = std::log2(kMostPrice);
  for (int i = 0; i < kHalvings && high - low > 1e-9; ++i) {
    const double middle = (low + high) / 2;
    Allocation tried = at_price(choices, std::exp2(middle));
    if (tried.harm > most) {
      low = middle;
    } else {
      high = middle;
      safe = std::move(tried);
    }
  }
  return safe.rates;
}

}  // namespace epipe::train
