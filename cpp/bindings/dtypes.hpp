// bindings/dtypes.hpp — element types by the names Python gives them.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "schedule/loop_nest.hpp"
#include "support/error.hpp"

namespace syno::bindings {

inline const char* long_name(schedule::Dtype dtype) {
  switch (dtype) {
    case schedule::Dtype::F32:
      return "float32";
    case schedule::Dtype::F64:
      return "float64";
    case schedule::Dtype::BF16:
      return "bfloat16";
  }
  return "";
}

inline schedule::Dtype dtype_named(const std::string& name) {
  using schedule::Dtype;
  std::vector<std::string> valid;
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16}) {
    if (name == long_name(dtype)) return dtype;
    valid.emplace_back(long_name(dtype));
  }
  throw UnknownName("schedule", unknown_name("dtype", name, valid));
}

}  // namespace syno::bindings
