// bindings/dtypes.hpp — element types by the names Python gives them.
#pragma once

#include <string>

#include "schedule/loop_nest.hpp"
#include "support/error.hpp"

namespace syno::bindings {

inline schedule::Dtype dtype_named(const std::string& name) {
  if (name == "float32") return schedule::Dtype::F32;
  if (name == "float64") return schedule::Dtype::F64;
  if (name == "bfloat16") return schedule::Dtype::BF16;
  throw UnknownName("schedule", unknown_name("dtype", name, {"float32", "float64", "bfloat16"}));
}

}  // namespace syno::bindings
