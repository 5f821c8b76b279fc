// lower/read_view.hpp — what a read sees of its tensor, as a tensor of its own.
#pragma once

#include <map>
#include <vector>

#include "lower/index_inverse.hpp"

namespace syno::lower {

/// A scope's points as those that a read tells apart and the others. Iterators are fresh ones.
struct ReadView {
  std::vector<Slot> coordinates;  ///< iterators, or blocks of them, that the read moves with
  std::vector<Slot> rest;         ///< those it stands still for
  std::map<Slot, ExprId> points;  ///< by iterator of the space: over both
  std::vector<ExprId> indices;    ///< of the read, over its coordinates
};

/// Iterators become blocks where quotients or remainders in the indices cut them so (c / 64, c % 64), and
/// blocks that the indices only put together again become one coordinate. Concrete programs only.
ReadView view_of_read(Iterators& iterators, const std::vector<Slot>& space,
                      const std::vector<ExprId>& indices);

}  // namespace syno::lower
