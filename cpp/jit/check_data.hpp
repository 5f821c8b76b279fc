// jit/check_data.hpp — what checks compute on: memory as a kernel wants it, and what is drawn to be in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "jit/check_points.hpp"
#include "nest/loop_nest.hpp"
#include "program/interpret.hpp"
#include "support/bfloat16.hpp"
#include "support/interrupt.hpp"
#include "support/random.hpp"

namespace syno::jit {

/// What an input's elements are made of numbers u, uniform in [-1, 1).
struct Data {
  enum class Kind : std::uint8_t {
    Around,    ///< center + size * u
    Both,      ///< sign(u) * center * 2^(2 |u| - 1): nothing near zero
    Positive,  ///< center * 2^u
  } kind = Kind::Around;
  double center = 0, size = 1;
  double of(double u) const;
  bool operator==(const Data&) const = default;
};

/// Data for which results may leave the range of normal numbers less than for those between -1 and 1: larger,
/// smaller, of one sign, and around what the program's literals take away.
std::vector<Data> choices_of_data(const program::Program& program, nest::Dtype dtype);

/// An argument's memory as its strides want it.
class Memory {
 public:
  explicit Memory(const nest::Buffer& buffer);
  /// Whether a buffer lies in memory as this one.
  bool fits(const nest::Buffer& buffer) const;
  void* first() { return bytes_.data() + static_cast<std::size_t>(offset_) * size_; }
  /// Calls visit(place) for every element, last index fastest. A user may interrupt.
  template <class Visit>
  void for_each_place(const Visit& visit) {
    constexpr std::int64_t kPiece = 1 << 16;
    std::vector<std::int64_t> rows = buffer_.extents;
    std::int64_t row = 1, step = 0;
    if (!rows.empty()) {
      row = rows.back();
      step = buffer_.strides.back() * static_cast<std::int64_t>(size_);
      rows.pop_back();
    }
    // Dimensions that follow each other in memory are one: windows of three taps would be rows of three.
    while (!rows.empty() &&
           buffer_.strides[rows.size() - 1] * static_cast<std::int64_t>(size_) == row * step) {
      row *= rows.back();
      rows.pop_back();
    }
    for_each_point(rows, [&](const Point& at) {
      char* const begin = bytes_.data() + offset(at);
      for (std::int64_t i = 0; i < row; ++i) {
        if (i % kPiece == 0) interruption_point();
        visit(begin + i * step);
      }
    });
  }
  /// Writes a number to each element, last index fastest.
  void put_all(const double* next) {
    if (buffer_.dtype == nest::Dtype::F32)
      for_each_place([&](char* place) {
        const auto narrow = static_cast<float>(*next++);
        std::memcpy(place, &narrow, sizeof narrow);
      });
    else
      for_each_place([&](char* place) { put(place, *next++); });
  }
  void put(char* place, double value) const {
    if (buffer_.dtype == nest::Dtype::F64) {
      std::memcpy(place, &value, sizeof value);
    } else if (const auto narrow = static_cast<float>(value); buffer_.dtype == nest::Dtype::F32) {
      std::memcpy(place, &narrow, sizeof narrow);
    } else {
      const std::uint16_t half = to_bfloat16(narrow);
      std::memcpy(place, &half, sizeof half);
    }
  }
  /// Nothing was written there: no kernel computes these bits.
  bool untouched(const Point& at) const;
  double get(const Point& at) const { return take(address(at)); }
  double take(const char* place) const {
    if (buffer_.dtype == nest::Dtype::F64) {
      double value = 0;
      std::memcpy(&value, place, sizeof value);
      return value;
    }
    if (buffer_.dtype == nest::Dtype::F32) {
      float value = 0;
      std::memcpy(&value, place, sizeof value);
      return static_cast<double>(value);
    }
    std::uint16_t half = 0;
    std::memcpy(&half, place, sizeof half);
    return static_cast<double>(from_bfloat16(half));
  }

 private:
  std::size_t offset(const Point& at) const {
    std::int64_t index = offset_;
    for (std::size_t d = 0; d < at.size(); ++d) index += at[d] * buffer_.strides[d];
    return static_cast<std::size_t>(index) * size_;
  }
  const char* address(const Point& at) const { return bytes_.data() + offset(at); }
  nest::Buffer buffer_;
  std::size_t size_;
  std::int64_t offset_ = 0;
  std::string bytes_;
};

/// An input of a check.
struct Drawn {
  Data data;
  program::Values<double> values;
  Memory memory;
};

/// One drawn from a stream, as its memory holds it: views may show an element at several places.
Drawn input_of(const nest::Buffer& buffer, const Data& data, const Random& stream);

/// Inputs as checks drew them, for the next check with the same seed: of one program at several sizes, the
/// constants are the same ones. And what a kernel packed of them.
class DrawnInputs {
 public:
  /// The input of the last check, where it has this shape and these data; else a new one.
  Drawn take(std::size_t input, const nest::Buffer& buffer, const Data& data, const Random& stream);
  /// For the next check.
  void put(std::size_t input, Drawn drawn) { kept_.insert_or_assign(input, std::move(drawn)); }
  /// Whether the last `take` of an input found it.
  bool found(std::size_t input) const { return input < found_.size() && found_[input]; }

  std::vector<Memory> packed;  ///< of inputs that were all found since

 private:
  std::map<std::size_t, Drawn> kept_;
  std::vector<bool> found_;
};

}  // namespace syno::jit
