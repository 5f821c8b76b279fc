#include "derive/folded.hpp"

#include <algorithm>

#include "derive/tools.hpp"
#include "lower/compacted.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

bool starts_at_zero(const Program& program, TensorId tensor) {
  const auto& dims = program.tensor(tensor).dims;
  return std::all_of(dims.begin(), dims.end(),
                     [&](const program::Range& dim) { return range_of(program, dim).first == 0; });
}

/// What may be computed once: constant tensors that scopes write and no caller reads, and only what can be
/// passed between the two programs.
struct Parts {
  std::set<TensorId> once;      ///< computed there
  std::set<TensorId> frontier;  ///< of those, what the rest reads
};

Parts parts_of(const Program& program, const std::set<TensorId>& constant,
               const std::vector<std::string>& named) {
  // What depends on none of the named inputs, such as powers of an index, is no cheaper to read than to
  // compute.
  std::set<TensorId> moved;
  for (const std::string& name : named) moved.insert(*program.find_tensor(name));
  Parts parts;
  for (const Scope& scope : program.scopes) {
    program::over_reads(program, scope.body, [&](ScalarId, const Scalar& read) {
      if (moved.contains(read.tensor)) moved.insert(scope.output);
    });
    if (constant.contains(scope.output) && moved.contains(scope.output) && !is_output(program, scope.output))
      parts.once.insert(scope.output);
  }
  // What the rest reads must start at 0; where it does not, its readers' side computes it.
  for (bool changed = true; changed;) {
    changed = false;
    parts.frontier.clear();
    for (const Scope& scope : program.scopes) {
      if (parts.once.contains(scope.output)) continue;
      program::over_reads(program, scope.body, [&](ScalarId, const Scalar& read) {
        if (parts.once.contains(read.tensor)) parts.frontier.insert(read.tensor);
      });
    }
    for (const TensorId tensor : parts.frontier)
      if (!starts_at_zero(program, tensor)) changed = parts.once.erase(tensor) > 0 || changed;
  }
  return parts;
}

std::int64_t bytes_of(const Program& program, TensorId tensor) {
  std::vector<std::int64_t> factors = program::shape_of(program, tensor);
  factors.push_back(4);
  return program::checked_product(kWhere, factors);
}

}  // namespace

std::set<TensorId> constant_tensors(const Program& program, const std::vector<std::string>& constants) {
  std::set<TensorId> constant;
  std::vector<std::string> valid;
  for (const TensorId input : program.inputs()) valid.push_back(program.tensor(input).name);
  for (const std::string& name : constants) {
    if (std::find(valid.begin(), valid.end(), name) == valid.end())
      throw UnknownName(kWhere, unknown_name("input", name, valid));
    constant.insert(*program.find_tensor(name));
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].role == program::Role::Constant) constant.insert(static_cast<TensorId>(t));
  // A tensor that several scopes add to is constant where all of them are.
  std::set<TensorId> written, moving;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Scope& scope : program.scopes) {
      bool still = true;
      program::over_reads(program, scope.body, [&](ScalarId, const Scalar& read) {
        const bool computed = program.tensor(read.tensor).role == program::Role::Computed;
        still = still && (computed ? !moving.contains(read.tensor) : constant.contains(read.tensor));
      });
      written.insert(scope.output);
      if (!still) changed = moving.insert(scope.output).second || changed;
    }
  }
  for (const TensorId tensor : written)
    if (!moving.contains(tensor)) constant.insert(tensor);
  return constant;
}

std::set<TensorId> before_calls(const Program& program, const std::vector<std::string>& constants) {
  if (constants.empty()) return {};
  std::set<TensorId> found = constant_tensors(program, constants);
  for (const TensorId output : program.outputs) found.erase(output);
  return found;
}

std::optional<Folded> folded(const Program& program, const std::vector<std::string>& constants) {
  const Parts parts = parts_of(program, constant_tensors(program, constants), constants);
  if (parts.frontier.empty()) return std::nullopt;
  Folded result{program, program};
  result.once.outputs.assign(parts.frontier.begin(), parts.frontier.end());
  result.once = lower::compacted(result.once, {});
  std::erase_if(result.call.scopes,
                [&](const Scope& scope) { return parts.frontier.contains(scope.output); });
  for (const TensorId tensor : parts.frontier)
    result.call.tensors[static_cast<std::uint32_t>(tensor)].role = program::Role::Weight;
  std::set<TensorId> kept;  // data stays an input even where nothing reads it
  for (const TensorId input : program.inputs())
    if (std::find(constants.begin(), constants.end(), program.tensor(input).name) == constants.end())
      kept.insert(input);
  result.call = lower::compacted(result.call, kept);
  return result;
}

ConstantBytes constant_bytes(const Program& program, const std::vector<std::string>& constants) {
  const std::set<TensorId> constant = constant_tensors(program, constants);
  const Parts parts = parts_of(program, constant, constants);
  ConstantBytes bytes;
  for (const std::string& name : constants) bytes.before += bytes_of(program, *program.find_tensor(name));
  std::set<TensorId> read_then = parts.frontier;
  for (const Scope& scope : program.scopes) {
    if (parts.once.contains(scope.output)) continue;
    program::over_reads(program, scope.body, [&](ScalarId, const Scalar& read) {
      const bool given = program.tensor(read.tensor).role != program::Role::Constant;
      if (given && constant.contains(read.tensor)) read_then.insert(read.tensor);
    });
  }
  for (const TensorId tensor : read_then)
    if (program.tensor(tensor).role != program::Role::Computed || parts.frontier.contains(tensor))
      bytes.after += bytes_of(program, tensor);
  return bytes;
}

}  // namespace syno::derive
