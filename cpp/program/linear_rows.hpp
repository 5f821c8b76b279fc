// program/linear_rows.hpp — rows of the matrix that a program is where it is linear in an input: which of the
// input's elements an element of an output is a sum of, and how much of each. An element costs what it is
// made of, however large the tensors are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/interpret.hpp"

namespace syno::program {

/// What differs from zero, by its row-major place in the input, ascending.
struct LinearRow {
  std::vector<std::int64_t> offsets;
  std::vector<double> values;
};

/// The derivatives of elements of `output` by `input`; `values` are those of all other inputs. A constant may
/// be added to what is linear.
/// VerifyError names the function or reduction by which the output is not linear in it; ShapeError and
/// UnknownName as interpret_points().
std::vector<LinearRow> linear_rows(const Program& concrete,
                                   const std::map<std::string, Values<double>>& values,
                                   const std::string& output, const std::string& input,
                                   const std::vector<std::vector<std::int64_t>>& points);

}  // namespace syno::program
