// emit/triton_access.hpp — how the lanes of a warp lie in memory: whether they read side by side is found by
// evaluating where some warps read, so that any index expression may be asked about.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "emit/indices.hpp"

namespace syno::emit {

/// An access of each element of a tile.
struct Access {
  std::vector<ExprId> at;
  std::vector<program::Extent> dims;  ///< of the tensor
  std::int64_t element = 4;           ///< bytes
  bool operator<(const Access& other) const {
    return std::pair(at, element) < std::pair(other.at, other.element);
  }
};

class Accesses {
 public:
  /// Of a scope over these iterators.
  Accesses(const program::Program& program, Indices& indices, std::vector<Slot> iterators)
      : program_(program), indices_(indices), iterators_(std::move(iterators)) {}

  /// Bytes of memory, in whole sectors of it, for a lane of a warp whose lanes go along a group of iterators.
  double fetched(const Access& access, const std::vector<Slot>& along);
  /// How many neighbouring lanes, at multiples of it, read neighbouring elements: as many as a load may take
  /// at once, or a smaller power of two; 2 where most lanes do, 1 where they do not.
  int side_by_side(const Access& access, const std::vector<Slot>& along);

 private:
  using Places = std::vector<std::optional<std::int64_t>>;
  void over_warps(const Access& access, const std::vector<Slot>& along, int warps,
                  const std::function<void(const Places&)>& use);

  const program::Program& program_;
  Indices& indices_;
  std::vector<Slot> iterators_;
  std::map<std::pair<Access, std::vector<Slot>>, double> fetched_;
};

}  // namespace syno::emit
