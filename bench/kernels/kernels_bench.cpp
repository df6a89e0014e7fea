// The inner loops by themselves, on every instruction set this CPU has, beside memcpy of the same values.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>

#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/kernels/order.h"
#include "epipe/wire/crc32c.h"

namespace {

using namespace epipe;
using namespace epipe::kernels;

constexpr std::size_t kValues = std::size_t{32} * 32 * 112 * 112;  // 51 MB

const std::vector<float>& relu6_values() {
  static const std::vector<float> x = [] {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal(1, 1.5);
    std::vector<float> values(kValues);
    for (float& v : values) v = std::min(6.0F, std::max(0.0F, normal(engine)));
    return values;
  }();
  return x;
}

RunTable table_for(unsigned level_bits, unsigned split_bits) {
  const auto count = static_cast<float>(1U << split_bits);
  const auto levels = static_cast<float>((1U << level_bits) - 1);
  std::vector<Run> runs;
  for (float i = 0; i < count; ++i) runs.push_back({6 * i / count, 6 / count / levels});
  return {runs, level_bits};
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(kValues * sizeof(float)));
}

void bench_memcpy(benchmark::State& state) {
  std::vector<float> out(kValues);
  for (auto _ : state) {
    std::memcpy(out.data(), relu6_values().data(), kValues * sizeof(float));
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void bench_crc32c(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(wire::crc32c(std::as_bytes(std::span(relu6_values()))));
  count_bytes(state);
}

void bench_range(benchmark::State& state, const Kernels& k) {
  for (auto _ : state) benchmark::DoNotOptimize(k.key_range(relu6_values(), KeyOf::kValue));
  count_bytes(state);
}

void bench_order(benchmark::State& state, const Kernels& k, std::size_t runs) {
  std::vector<std::size_t> ranks;
  for (std::size_t i = 1; i < runs; ++i) {
    ranks.push_back(i * kValues / runs - 1);
    ranks.push_back(i * kValues / runs);
  }
  for (auto _ : state) benchmark::DoNotOptimize(order_statistics(relu6_values(), KeyOf::kValue, ranks, k, nullptr));
  count_bytes(state);
}

void bench_encode(benchmark::State& state, const Kernels& k, unsigned level_bits, unsigned split_bits) {
  const RunTable table = table_for(level_bits, split_bits);
  Bytes out(packed_bytes(kValues, table.bits()));
  for (auto _ : state) k.encode_runs(relu6_values(), table, out);
  count_bytes(state);
}

void bench_decode(benchmark::State& state, const Kernels& k, unsigned level_bits, unsigned split_bits) {
  const RunTable table = table_for(level_bits, split_bits);
  Bytes in(packed_bytes(kValues, table.bits()));
  k.encode_runs(relu6_values(), table, in);
  std::vector<float> out(kValues);
  for (auto _ : state) k.decode_runs(in, table, out);
  count_bytes(state);
}

void register_all() {
  const auto add = [](const std::string& name, auto function, auto... arguments) {
    benchmark::RegisterBenchmark(name.c_str(), function, arguments...)->Unit(benchmark::kMillisecond)->UseRealTime();
  };
  add("memcpy", bench_memcpy);
  add("crc32c", bench_crc32c);
  for (const Kernels* k : {&scalar(), avx2(), avx512()}) {
    if (k == nullptr) continue;
    const std::string isa(k->name);
    add("range/" + isa, bench_range, std::cref(*k));
    for (const std::size_t runs : {4U, 16U}) add("order/" + std::to_string(runs) + "_runs/" + isa, bench_order, std::cref(*k), runs);
    for (const auto& [q, s] : {std::pair<unsigned, unsigned>{8, 0}, {6, 2}, {4, 0}, {11, 1}, {12, 4}, {8, 5}}) {
      const std::string split = std::to_string(q) + "+" + std::to_string(s) + "/" + isa;
      add("encode/" + split, bench_encode, std::cref(*k), q, s);
      add("decode/" + split, bench_decode, std::cref(*k), q, s);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  relu6_values();  // made before the clock starts
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
