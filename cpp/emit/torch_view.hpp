// emit/torch_view.hpp — a read of a tensor as a chain of PyTorch views, pads and rolls, one dimension for
// each iterator that the read depends on.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "emit/indices.hpp"

namespace syno::emit {

/// One dimension of a value under way from the tensor's own dimensions to one per iterator.
struct ViewDim {
  bool resolved = false;
  Slot slot = 0;   ///< resolved: the iterator that walks it from 0
  ExprId index{};  ///< otherwise: where the read looks, 0 being the first element
  std::int64_t extent = 0;
  bool kept = false;  ///< resolve() leaves it alone
};

/// Rewrites x[e1, e2, ...] step by step. Each index is peeled from the tensor's side: a guard becomes a pad,
/// a remainder a roll (or a repetition), a quotient a repetition, a sum of iterators a window.
class TorchView {
 public:
  /// `value` is a Python expression; `indices` count from the tensor's first element.
  TorchView(Indices& indices, std::string value, std::vector<std::int64_t> extents, std::vector<ExprId> reads,
            std::string fill);
  /// A value that has a dimension for each iterator.
  TorchView(Indices& indices, std::string value, const std::vector<Slot>& slots);

  /// Peels until every dimension is an iterator or a sum of multiples of iterators or of quotients etc.
  void peel();
  /// Resolves every dimension that is not kept. Iterators that occur twice are made one (a diagonal).
  void resolve();
  void keep(std::size_t d) { dims_[d].kept = true; }

  void permute(const std::vector<std::size_t>& order);
  void flip(const std::vector<std::size_t>& dims);
  void flatten(std::size_t first, std::size_t count);
  void sum(const std::vector<Slot>& slots);
  /// Pads (or crops, where negative) dimensions in one call.
  void pad(const std::vector<std::pair<std::int64_t, std::int64_t>>& amounts);

  const std::string& value() const { return value_; }
  /// Whether the largest tensor that is copied on the way has several times as many elements as the value by
  /// now, and as the one it began with.
  bool copies_much() const;
  const std::vector<ViewDim>& dims() const { return dims_; }

 private:
  void join_pairs();
  bool peel_once(std::size_t d);
  /// Replaces dimension d by its elements start, start + step, ... (`count`, fill outside).
  void select(std::size_t d, std::int64_t start, std::int64_t step, std::int64_t count);
  void repeat(std::size_t d, std::int64_t count);  ///< a dimension of one element
  void window(std::size_t d);
  void take_diagonals();
  double elements() const;
  void copied();  ///< what the value is by now is a tensor of its own
  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    value_ += fmt::format(format, std::forward<Args>(args)...);
  }

  Indices& indices_;
  std::string value_;
  std::vector<ViewDim> dims_;
  std::string fill_;
  double begun_ = 0;         ///< elements it began with
  double largest_copy_ = 0;  ///< elements of the largest tensor that is copied on the way
};

}  // namespace syno::emit
