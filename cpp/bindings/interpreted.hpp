// bindings/interpreted.hpp — the reference interpreter on NumPy's arrays: what a program computes, in double
// precision, in fractions, or at points alone.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::bindings {

namespace py = pybind11;
using Shape = std::vector<std::int64_t>;

/// Outputs by name, of inputs by name. ShapeError where those do not fit.
py::dict interpret_float64(const program::Program& program, const py::dict& inputs);
/// The same of fractions: arrays of objects.
py::dict interpret_exactly(const program::Program& program, const py::dict& inputs);
/// Values of an output at points, and the sums of their terms' magnitudes.
py::tuple interpret_at_points(const program::Program& program, const py::dict& inputs,
                              const std::string& output, const std::vector<Shape>& points);
/// How an output depends on an input at points: places in the input, and factors.
py::list linear_rows_of(const program::Program& program, const py::dict& values, const std::string& output,
                        const std::string& input, const std::vector<Shape>& points);

}  // namespace syno::bindings
