// Running a loop nest natively and in the interpreter on the same random inputs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "jit/kernel.hpp"
#include "support/bfloat16.hpp"
#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::jit::testing_nests {

using nest::Buffer;
using nest::BufferKind;
using nest::Dtype;
using nest::LoopNest;

inline double rounded(Dtype dtype, double value) {
  if (dtype == Dtype::F64) return value;
  const auto narrow = static_cast<float>(value);
  if (dtype == Dtype::F32) return static_cast<double>(narrow);
  return static_cast<double>(from_bfloat16(to_bfloat16(narrow)));
}

inline std::int64_t count_of(const std::vector<std::int64_t>& extents) {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  return count;
}

/// One argument's memory, with its strides, between guards that must stay as they are.
class Argument {
 public:
  explicit Argument(const Buffer& buffer) : buffer_(buffer), size_(nest::byte_size(buffer.dtype)) {
    std::int64_t low = 0, high = 0;
    for (std::size_t d = 0; d < buffer.extents.size(); ++d) {
      const std::int64_t reach = std::max<std::int64_t>(buffer.extents[d] - 1, 0) * buffer.strides[d];
      (reach < 0 ? low : high) += reach;
    }
    offset_ = kGuard - low;
    bytes_.assign(static_cast<std::size_t>(high - low + 1 + 2 * kGuard) * size_, '\xff');
  }
  void* data() { return bytes_.data() + static_cast<std::size_t>(offset_) * size_; }
  View view() { return {data(), buffer_.extents, buffer_.strides}; }

  void set(std::int64_t row_major, double value) {
    char* at = place(row_major);
    const auto narrow = static_cast<float>(value);
    const std::uint16_t half = to_bfloat16(narrow);
    if (buffer_.dtype == Dtype::F64)
      std::memcpy(at, &value, 8);
    else if (buffer_.dtype == Dtype::F32)
      std::memcpy(at, &narrow, 4);
    else
      std::memcpy(at, &half, 2);
  }
  double get(std::int64_t row_major) {
    const char* at = place(row_major);
    double wide = 0;
    float narrow = 0;
    std::uint16_t half = 0;
    if (buffer_.dtype == Dtype::F64) return std::memcpy(&wide, at, 8), wide;
    if (buffer_.dtype == Dtype::F32) return std::memcpy(&narrow, at, 4), static_cast<double>(narrow);
    std::memcpy(&half, at, 2);
    return static_cast<double>(from_bfloat16(half));
  }
  const std::string& bytes() const { return bytes_; }
  void set_bytes(std::string bytes) { bytes_ = std::move(bytes); }
  std::size_t offset_bytes() const {
    return static_cast<std::size_t>(offset_) * size_;
  }  ///< of data() in them
  /// Whether every byte outside the elements is as it was.
  bool surroundings_untouched() {
    std::string copy = bytes_;
    std::swap(copy, bytes_);
    std::string kept = copy;
    for (std::int64_t i = 0; i < count_of(buffer_.extents); ++i) std::memset(place(i), 0xff, size_);
    for (std::int64_t i = 0; i < count_of(buffer_.extents); ++i) {
      const auto at = static_cast<std::size_t>(place(i) - bytes_.data());
      std::memset(kept.data() + at, 0xff, size_);
    }
    std::swap(copy, bytes_);
    return kept == std::string(kept.size(), '\xff');
  }

 private:
  static constexpr std::int64_t kGuard = 80;
  char* place(std::int64_t row_major) {
    std::int64_t at = offset_;
    for (std::size_t d = buffer_.extents.size(); d-- > 0;) {
      at += row_major % buffer_.extents[d] * buffer_.strides[d];
      row_major /= buffer_.extents[d];
    }
    return bytes_.data() + static_cast<std::size_t>(at) * size_;
  }
  Buffer buffer_;
  std::size_t size_;
  std::int64_t offset_ = 0;
  std::string bytes_;
};

struct NestRun {
  std::vector<Argument> arguments;
  std::map<std::string, program::Values<double>> inputs;
  std::vector<View> views() {
    std::vector<View> all;
    for (Argument& argument : arguments) all.push_back(argument.view());
    return all;
  }
};

inline NestRun random_arguments(const LoopNest& nest, Random& random) {
  NestRun run;
  for (const nest::BufferId id : nest::arguments(nest)) {
    const Buffer& buffer = nest.buffer(id);
    run.arguments.emplace_back(buffer);
    if (buffer.kind != BufferKind::Input) continue;
    program::Values<double> values{buffer.extents, {}};
    for (std::int64_t i = 0; i < count_of(buffer.extents); ++i) {
      run.arguments.back().set(i, rounded(buffer.dtype, 2 * random.unit() - 1));
    }
    // Read back: with a stride of zero several indices share an element.
    for (std::int64_t i = 0; i < count_of(buffer.extents); ++i)
      values.data.push_back(run.arguments.back().get(i));
    run.inputs[buffer.name] = std::move(values);
  }
  return run;
}

inline double tolerance(const LoopNest& nest) {
  double loosest = 1e-11;
  for (const Buffer& buffer : nest.buffers)
    loosest = std::max(loosest, buffer.dtype == Dtype::F64   ? 1e-11
                                : buffer.dtype == Dtype::F32 ? 1e-4
                                                             : 2e-2);
  return loosest;
}

/// Every element of every output is what the interpreter found, and nothing else was written.
inline void expect_results(const LoopNest& nest, NestRun& run,
                           const std::map<std::string, program::Values<double>>& reference) {
  const double limit = tolerance(nest);
  std::size_t next = 0;
  for (const nest::BufferId id : nest::arguments(nest)) {
    const Buffer& buffer = nest.buffer(id);
    Argument& argument = run.arguments[next++];
    ASSERT_TRUE(argument.surroundings_untouched()) << buffer.name << " was written outside its elements";
    if (buffer.kind != BufferKind::Output) continue;
    const auto& wanted = reference.at(buffer.name).data;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double got = argument.get(static_cast<std::int64_t>(i));
      if (std::isnan(wanted[i])) {
        ASSERT_TRUE(std::isnan(got)) << buffer.name << " element " << i << " is " << got;
      } else if (std::isinf(wanted[i])) {
        ASSERT_EQ(got, wanted[i]) << buffer.name << " element " << i;
      } else {
        ASSERT_NEAR(got, wanted[i], limit * std::max(1.0, std::abs(wanted[i])))
            << buffer.name << " element " << i;
      }
    }
  }
}

/// Compiles for `cpu`, runs on `threads`, and compares every element with the interpreter.
inline void expect_as_interpreted(const LoopNest& nest, std::uint64_t seed, const Cpu* cpu = nullptr,
                                  int threads = 1) {
  SCOPED_TRACE(nest::to_text(nest));
  Random random(seed);
  CompileOptions options;
  options.cpu = cpu;
  const auto kernel = compile(nest, options);
  NestRun run = random_arguments(nest, random);
  const auto reference = nest::interpret(nest, run.inputs);
  kernel->call(run.views(), threads);
  expect_results(nest, run, reference);
}

}  // namespace syno::jit::testing_nests
