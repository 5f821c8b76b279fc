// graph/builtins.hpp — the calls that need no host: what programs do not say, because their indices depend on
// data or their elements are no floats.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.hpp"
#include "program/interpret.hpp"

namespace syno::graph {

using Values = program::Values<double>;

/// Type and shape of an operand.
struct Operand {
  ElementType type = ElementType::F32;
  Shape shape;
  bool operator==(const Operand&) const = default;
};

/// Runs on row-major memory: inputs, then outputs, which overlap nothing. ShapeError where values do not fit.
using BoundBuiltin = std::function<void(void* const* pointers)>;

/// - gather(table, indices): row indices[i...] of table[n, ...], for each i; indices are int64 or int32.
///   ShapeError, naming it, for one outside of [0, n), or with {"negative": true} of [-n, n), where the
///   negative ones count from the end. With {"dim": d} rows of that dimension of each table before it: x[i,
///   p[k], j]. With {"axis": a}, indices have the table's dimensions, and each names one element along the
///   axis: x[i, p[i, j], j].
/// - cast(x), {"to": type}: the values in another type. Floats become integers towards 0, beyond their ends
///   the last one, NaN 0; longer integers become shorter ones modulo a power of two; bool is whether a number
///   is not 0, and of NaN true.
/// - argmax(x), {"axis": a, "keepdim": false}: where along an axis the greatest element is, as int64: the
///   first of several; NaN counts as the greatest. Without an axis, or where it is null: in the whole tensor.
/// - scatter(table, indices, rows), {"reduce": "set", "negative": false}: the table, where row indices[i...]
/// is
///   rows[i...], or with "add", "mul", "max", "min" is combined with it, one i after the other; with {"axis":
///   a} single elements. ShapeError as gather has it.
/// - scan(x), {"axis": a, "by": "sum", "exclusive": false, "reverse": false}: along an axis, of each element
/// and those
///   before it the sum, the product ("prod") or the logarithm of the sum of exponentials ("logsumexp");
///   without the element itself, or from the end. Floats are added up in double precision, int64 and int32
///   modulo a power of two.
/// - sample(x, grid), {"mode": "bilinear", "padding": "zeros", "align": false}: of x[n, c, ...], of up to
///   three dimensions, what lies at the places grid[n, i..., d], the last dimension's coordinate first, from
///   -1 to 1, as torch's grid_sample. A place that is no number lies outside.
/// - copy(x): the same elements in the same row-major order, in any shape.
struct Builtin {
  std::string_view name;
  std::string_view statement;
  /// What it computes of such inputs. ShapeError, FormatError, UnknownName where they do not fit.
  Operand (*result)(const std::vector<Operand>& inputs, std::string_view attributes);
  BoundBuiltin (*bind)(const std::vector<Operand>& inputs, std::string_view attributes);
  Values (*interpret)(const std::vector<Operand>& inputs, std::string_view attributes,
                      const std::vector<Values>& values);
};
std::span<const Builtin> builtins();
const Builtin* find_builtin(std::string_view name);

/// `values` elements of one type as another one's, in double precision: what `cast` means.
double cast_value(double value, ElementType from, ElementType to);

/// Converts memory: what `cast` runs.
using CastFunction = void(const void* from, void* to, std::int64_t count);
CastFunction* cast_function(ElementType from, ElementType to);

}  // namespace syno::graph
