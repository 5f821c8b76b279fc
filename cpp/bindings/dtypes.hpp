// bindings/dtypes.hpp — element types by the names Python gives them.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "nest/loop_nest.hpp"
#include "support/error.hpp"

namespace syno::bindings {

inline const char* long_name(nest::Dtype dtype) {
  switch (dtype) {
    case nest::Dtype::F32:
      return "float32";
    case nest::Dtype::F64:
      return "float64";
    case nest::Dtype::BF16:
      return "bfloat16";
  }
  return "";
}

inline nest::Dtype dtype_named(const std::string& name) {
  using nest::Dtype;
  std::vector<std::string> valid;
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16}) {
    if (name == long_name(dtype)) return dtype;
    valid.emplace_back(long_name(dtype));
  }
  throw UnknownName("schedule", unknown_name("dtype", name, valid));
}

}  // namespace syno::bindings
