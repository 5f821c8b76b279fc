// emit/torch_scope.hpp — one scope of a concrete program as lines of PyTorch.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "emit/indices.hpp"
#include "emit/torch_view.hpp"

namespace syno::emit {

/// What the lines of a module share.
struct TorchContext {
  const program::Program* program = nullptr;
  std::vector<std::string> variables;         ///< by TensorId: how `forward` names it
  std::vector<std::vector<bool>> batch_dims;  ///< by TensorId, dimension: any size will do
  std::set<Slot> batch_slots;                 ///< iterators over such dimensions
  std::string like;                           ///< an input: gives dtype and device
  std::vector<std::string> buffers;           ///< lines of __init__
};

/// Appends the lines that compute `scope` to `lines`.
void write_torch_scope(TorchContext& context, const program::Scope& scope, std::vector<std::string>& lines);

}  // namespace syno::emit
