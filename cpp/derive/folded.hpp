// derive/folded.hpp — a program in two: what depends on constant inputs alone, which is computed once, and
// the rest, which every call computes.
//
// With k constant, t[i] = k[i] * 2; y[i] = x[i] * t[i] is `once`, t of k, and `call`, y of x and t.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "derive/names.hpp"

namespace syno::derive {

struct Folded {
  Program once;  ///< its inputs are constant ones of the whole program; its outputs are read by `call`
  Program call;  ///< its inputs are those of the whole program that it still reads, in their order, then
                 ///< weights that `once` computes, by its outputs' names
};

/// Tensors that hold the same values in every call when the inputs of these names do: constants and those
/// inputs, and what is computed of them alone.
std::set<TensorId> constant_tensors(const Program& program, const std::vector<std::string>& constants);

/// Of those, what is computed before any call where `constants` stay: outputs are written by each. None where
/// nothing stays.
std::set<TensorId> before_calls(const Program& program, const std::vector<std::string>& constants);

/// Nothing where no scope depends on these inputs and constants alone, but for outputs, which each call
/// writes. A tensor whose legal indices do not start at 0 stays where it is computed, for inputs start there.
/// UnknownName where no input has one of the names.
std::optional<Folded> folded(const Program& program, const std::vector<std::string>& constants);

/// Bytes, at 4 an element, of the constant inputs, and of the constant tensors that the rest reads once
/// everything is folded.
struct ConstantBytes {
  std::int64_t before = 0;
  std::int64_t after = 0;
};
ConstantBytes constant_bytes(const Program& program, const std::vector<std::string>& constants);

}  // namespace syno::derive
