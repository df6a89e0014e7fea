// The inner loops by themselves, on every instruction set this CPU has, beside memcpy of the same values.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>

#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/kernels/order.h"
#include "epipe/codec/kernels/rans.h"
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

// Symbols of sixteen contexts, each with a table of its own from almost certain to wide, in runs of 1,024.
struct Symbols {
  static constexpr std::size_t kCount = std::size_t{1} << 22U;
  static constexpr std::size_t kRun = 1024;

  std::vector<Frequencies> tables{16};
  std::vector<std::uint8_t> tokens, table_of;

  Symbols() : tokens(kCount), table_of(kCount) {
    for (std::size_t t = 0; t < tables.size(); ++t) fill(tables[t], 0.9 - 0.05 * static_cast<double>(t));
    std::mt19937 engine(1);
    for (std::size_t i = 0; i < kCount; ++i) {
      table_of[i] = static_cast<std::uint8_t>(engine() % tables.size());
      std::uint32_t slot = engine() % kProbabilityScale;
      while (slot >= tables[table_of[i]][tokens[i]]) slot -= tables[table_of[i]][tokens[i]++];
    }
  }

 private:
  // 0 with probability p, each next magnitude with that of what is left.
  static void fill(Frequencies& table, double p) {
    table.fill(0);
    std::uint32_t left = kProbabilityScale;
    for (std::size_t token = 0; token < kTokens; ++token) {
      const auto share = static_cast<std::uint32_t>(p * left * (token == 0 ? 1 : 0.5));
      const auto others = static_cast<std::uint32_t>(kTokens - 1 - token);  // one each
      table[token] = static_cast<std::uint16_t>(std::clamp<std::uint32_t>(share, 1, left - others));
      left -= table[token];
    }
    table[0] = static_cast<std::uint16_t>(table[0] + left);
  }
};

const Symbols& symbols() {
  static const Symbols all;
  return all;
}

RansEncoder encode_symbols(const Kernels& k, const EncodeTables& tables, MutableBytes room) {
  RansEncoder encoder = start_encoder(kMaxStates, room);
  for (std::size_t at = Symbols::kCount; at > 0; at -= Symbols::kRun) {
    const std::size_t from = at - Symbols::kRun;
    k.encode_tokens(encoder, std::span(symbols().tokens).subspan(from, Symbols::kRun), symbols().table_of.data() + from, tables.data());
  }
  return encoder;
}

void count_symbols(benchmark::State& state, std::size_t count) {
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(count));
}

void bench_rans_encode(benchmark::State& state, const Kernels& k) {
  const EncodeTables tables(symbols().tables);
  Bytes room(2 * Symbols::kCount + 64);
  for (auto _ : state) benchmark::DoNotOptimize(encode_symbols(k, tables, room).out);
  count_symbols(state, Symbols::kCount);
}

// Two chunks at once, as a payload of many chunks is decoded; here they hold the same symbols.
void bench_rans_decode(benchmark::State& state, const Kernels& k) {
  Bytes room(2 * Symbols::kCount + 64);
  const RansEncoder encoded = encode_symbols(k, EncodeTables(symbols().tables), room);
  const DecodeTables tables(symbols().tables);
  std::array<std::vector<std::uint8_t>, 2> tokens;
  tokens.fill(std::vector<std::uint8_t>(Symbols::kCount));
  bool sound = true;
  for (auto _ : state) {
    RansDecoder first{kMaxStates, encoded.states, encoded.out, room.data() + room.size()};
    RansDecoder second = first;
    for (std::size_t at = 0; at < Symbols::kCount; at += Symbols::kRun) {
      const auto run = [&](RansDecoder& decoder, std::vector<std::uint8_t>& to) {
        return TokenRun{&decoder, std::span(to).subspan(at, Symbols::kRun), symbols().table_of.data() + at};
      };
      sound &= k.decode_two(run(first, tokens[0]), run(second, tokens[1]), tables.data());
    }
    sound &= finished(first) && finished(second);
  }
  if (!sound || tokens[0] != symbols().tokens || tokens[1] != tokens[0]) state.SkipWithError("other symbols than were encoded");
  count_symbols(state, 2 * Symbols::kCount);
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
    add("rans_encode/" + isa, bench_rans_encode, std::cref(*k));
    add("rans_decode/" + isa, bench_rans_decode, std::cref(*k));
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
