#include "bindings/interpreted.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/unlocked.hpp"
#include "program/interpret.hpp"
#include "program/linear_rows.hpp"
#include "support/error.hpp"

namespace syno::bindings {

using namespace pybind11::literals;
using namespace program;

namespace {

using Array = py::array_t<double, py::array::c_style | py::array::forcecast>;

std::map<std::string, Values<double>> values_from(const py::dict& inputs) {
  std::map<std::string, Values<double>> result;
  for (const auto& [key, value] : inputs) {
    const std::string name = py::cast<std::string>(key);
    const Array array = Array::ensure(value);
    if (!array) {
      PyErr_Clear();
      fail<ShapeError>("interpret", "'{}' is not an array of numbers", name);
    }
    Values<double> values;
    values.shape.assign(array.shape(), array.shape() + array.ndim());
    values.data.assign(array.data(), array.data() + array.size());
    result.emplace(name, std::move(values));
  }
  return result;
}

py::array_t<double> array_from(const Values<double>& values) {
  py::array_t<double> array(values.shape);
  std::copy(values.data.begin(), values.data.end(), array.mutable_data());
  return array;
}

}  // namespace

py::dict interpret_float64(const Program& program, const py::dict& inputs) {
  const auto values = values_from(inputs);
  const auto outputs = unlocked([&] { return interpret(program, values); });
  py::dict result;
  for (const auto& [name, output] : outputs) result[py::str(name)] = array_from(output);
  return result;
}

py::dict interpret_exactly(const Program& program, const py::dict& inputs) {
  const py::module_ numpy = py::module_::import("numpy");
  const py::object fraction = py::module_::import("fractions").attr("Fraction");
  std::map<std::string, Values<Rational>> values;
  for (const auto& [key, value] : inputs) {
    const std::string name = py::cast<std::string>(key);
    const py::object array = numpy.attr("asarray")(value, "dtype"_a = "object");
    Values<Rational> tensor;
    for (const auto& extent : array.attr("shape")) tensor.shape.push_back(py::cast<std::int64_t>(extent));
    for (const auto& element : array.attr("flat")) {
      const py::object exact = fraction(element);
      try {
        tensor.data.emplace_back(py::cast<std::int64_t>(exact.attr("numerator")),
                                 py::cast<std::int64_t>(exact.attr("denominator")));
      } catch (const py::cast_error&) {
        fail<ShapeError>("interpret_exact", "an element of '{}' does not fit 64 bits as a fraction: {}", name,
                         py::cast<std::string>(py::str(exact)));
      }
    }
    values.emplace(name, std::move(tensor));
  }
  const auto outputs = unlocked([&] { return interpret(program, values); });
  py::dict result;
  for (const auto& [name, output] : outputs) {
    py::object array = numpy.attr("empty")(py::tuple(py::cast(output.shape)), "dtype"_a = "object");
    py::object flat = array.attr("flat");
    for (std::size_t i = 0; i < output.data.size(); ++i) {
      const Rational element = output.data[i];
      flat.attr("__setitem__")(
          i, element.finite() ? fraction(element.num(), element.den()) : py::float_(element.to_double()));
    }
    result[py::str(name)] = array;
  }
  return result;
}

py::tuple interpret_at_points(const Program& program, const py::dict& inputs, const std::string& output,
                              const std::vector<Shape>& points) {
  const auto values = values_from(inputs);
  const PointValues result = unlocked([&] { return interpret_points(program, values, output, points); });
  const auto to_array = [](const std::vector<double>& numbers) {
    return py::array_t<double>(static_cast<py::ssize_t>(numbers.size()), numbers.data());
  };
  return py::make_tuple(to_array(result.values), to_array(result.absolute_terms));
}

py::list linear_rows_of(const Program& program, const py::dict& values, const std::string& output,
                        const std::string& input, const std::vector<Shape>& points) {
  const auto given = values_from(values);
  const std::vector<LinearRow> rows =
      unlocked([&] { return linear_rows(program, given, output, input, points); });
  py::list result;
  for (const LinearRow& row : rows) {
    const auto count = static_cast<py::ssize_t>(row.offsets.size());
    result.append(py::make_tuple(py::array_t<std::int64_t>(count, row.offsets.data()),
                                 py::array_t<double>(count, row.values.data())));
  }
  return result;
}

}  // namespace syno::bindings
