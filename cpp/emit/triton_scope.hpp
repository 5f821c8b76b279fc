// emit/triton_scope.hpp — one scope as Triton kernels: what its tiles are, and their text.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "emit/triton_tiles.hpp"
#include "machine/gpu.hpp"
#include "program/program.hpp"

namespace syno::emit {

/// What all kernels of a module share.
struct TritonContext {
  const program::Program* program = nullptr;
  const machine::Gpu* gpu = nullptr;
  std::vector<std::string> names;        ///< Python names of tensors, by TensorId
  std::set<std::string> used;            ///< names that mean something in the module
  std::vector<std::string> dtypes;       ///< of each tensor's memory: "float32", ...
  std::string compute = "float32";       ///< what is computed in: or "float64"
  std::set<std::string> helpers;         ///< functions of the module that kernels call
  std::optional<std::uint64_t> variant;  ///< which candidates are taken instead of the best
  bool split_tf32 = false;               ///< float32 products may be three of TF32
  std::vector<std::size_t> ranks;  ///< by scope, which candidate in the order of predicted times is taken
};

struct ScopeKernel {
  std::string name;
  Tile tile;
  std::size_t candidates = 0;           ///< that there were
  std::vector<std::string> definition;  ///< lines of the module
  std::vector<std::string> launch;      ///< lines of the function that runs them, without indent
};

/// Writes the kernels of a scope. KernelError where Triton has no function for what the scope computes.
ScopeKernel write_triton_scope(TritonContext& context, std::size_t scope, const std::string& name);

/// The text of a helper function, and of those it calls, in order.
std::vector<std::string> triton_helper(const std::string& name);

}  // namespace syno::emit
