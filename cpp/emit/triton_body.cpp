#include "emit/triton_body.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "program/scalars.hpp"
#include "support/error.hpp"

namespace syno::emit {

using program::Function;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;

namespace {

constexpr std::int64_t kMostPower = 16;

std::vector<program::Extent> dims_of(const program::Program& program, program::TensorId tensor) {
  std::vector<program::Extent> dims;
  for (const auto& range : program.tensor(tensor).dims) dims.push_back(program::extent_of(program, range, 0));
  return dims;
}

}  // namespace

std::string TileBody::number(Rational value) const {
  if (!value.finite()) return value.num() > 0 ? "float(\"inf\")" : "float(\"-inf\")";
  std::string text = fmt::format("{}", value.to_double());
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string TileBody::literal(Rational value) const {
  return fmt::format("tl.full([], {}, tl.{})", number(value), context_.compute);
}

std::string TileBody::quotient(const std::string& a, const std::string& b) const {
  // The sign `/` is not rounded correctly in float32.
  return context_.compute == "float32" ? fmt::format("tl.div_rn({}, {})", a, b)
                                       : fmt::format("{} / {}", a, b);
}

std::string TileBody::helper(const char* name, const std::string& arguments) {
  context_.helpers.insert(name);
  return fmt::format("{}({})", name, arguments);
}

TileText TileBody::mask(std::vector<TileText> conditions, unsigned axes, const Frame& frame) {
  for (const Axis axis : {kRow, kColumn, kDepth})
    if ((axes & 1u << axis) != 0 && !masks_[axis].empty())
      conditions.push_back(indices_.assign(
          {masks_[axis] + (frame[axis] == nullptr ? "" : frame[axis]), 1u << axis, axis == kDepth}, "c"));
  TileText all;
  for (const TileText& each : conditions) {
    if (all.text.empty()) {
      all = each;
      continue;
    }
    // Triton's interpreter gives a truth that it spreads over a tile another type: comparing gives it back.
    const bool mixed = is_scalar(all.axes, frame) != is_scalar(each.axes, frame);
    const std::string both = fmt::format("{} & {}", all.text, each.text);
    all = indices_.assign(
        {mixed ? fmt::format("({}) != 0", both) : both, all.axes | each.axes, all.looped || each.looped},
        "c");
  }
  return all;
}

std::string TileBody::hinted(const Scalar& read, const std::string& place, unsigned axes,
                             const Frame& frame) const {
  if (!side_by_side) return place;
  std::array<int, 2> contiguous = {1, 1};
  unsigned dimensions = 0;
  for (const Axis axis : {kRow, kColumn, kDepth}) {
    if (frame[axis] == nullptr || *frame[axis] == 0 || (axes & 1u << axis) == 0) continue;
    ++dimensions;
    contiguous[frame[axis][1] == ':' ? 0 : 1] = side_by_side(read, axis);
  }
  // How wide a load is depends on what the compiler itself knows of the place, too.
  if (dimensions < 2 || contiguous[0] == contiguous[1]) return place;
  return fmt::format("tl.max_contiguous({}, [{}, {}])", place, contiguous[0], contiguous[1]);
}

TileText TileBody::loaded(const Scalar& read, const Frame& frame) {
  const std::size_t tensor = static_cast<std::size_t>(read.tensor);
  std::vector<TileText> conditions;
  TileText place = indices_.offset(read.indices, dims_of(program_, read.tensor), frame, conditions);
  unsigned axes = place.axes;
  bool looped = place.looped;
  for (const TileText& each : conditions) axes |= each.axes, looped = looped || each.looped;
  TileText condition = mask(std::move(conditions), axes, frame);
  if (axes != place.axes) {  // an element that is the same along an axis, and not read everywhere
    place.text = fmt::format("{} + {}.to(tl.int32) * 0", place.text, condition.text);
    place.axes = axes;
  }
  looped = looped || condition.looped;
  const std::string at = hinted(read, place.text, axes, frame);
  if (condition.text.empty())
    return indices_.assign({fmt::format("tl.load({} + {})", context_.names[tensor], at), axes, looped}, "v");
  if (is_scalar(condition.axes, frame) && !is_scalar(axes, frame))
    condition = indices_.assign(
        {fmt::format("({} * 0 + {}.to(tl.int32)) != 0", place.text, condition.text), axes, looped}, "c");
  // A fill that narrow memory cannot hold is put in behind the load.
  const bool held = context_.dtypes[tensor] == context_.compute || !read.fill.finite() ||
                    (read.fill.integral() && std::abs(read.fill.num()) <= 1);
  TileText value = indices_.assign({fmt::format("tl.load({} + {}, mask={}, other={})", context_.names[tensor],
                                                at, condition.text, held ? number(read.fill) : "0.0"),
                                    axes, looped},
                                   "v");
  if (!held) {
    value.text = fmt::format("tl.where({}, {}.to(tl.{}), {})", condition.text, value.text, context_.compute,
                             number(read.fill));
    value = indices_.assign(value, "v");
  }
  return value;
}

TileText TileBody::value(ScalarId root, const Frame& frame) {
  Known known, integers;
  for (const ScalarId id : program::scalars_of(program_, root)) {
    const Scalar& scalar = program_.scalar(id);
    TileText result;
    switch (scalar.kind) {
      case ScalarKind::Literal:
        known[id] = {literal(scalar.literal), 0, false};
        if (scalar.literal.integral())
          integers[id] = {fmt::format("tl.full([], {}, tl.int64)", scalar.literal.num()), 0, false};
        continue;
      case ScalarKind::Index: {
        std::vector<TileText> none;
        TileText index = indices_.index(scalar.index, frame);
        if (index.axes == 0 && !index.looped)  // it may be a number
          index = indices_.assign({fmt::format("tl.full([], 0, tl.int64) + {}", index.text), 0, false});
        integers[id] = index;
        result = {fmt::format("{}.to(tl.{})", index.text, context_.compute), index.axes, index.looped};
        break;
      }
      case ScalarKind::Read: {
        result = loaded(scalar, frame);
        const auto tensor = static_cast<std::size_t>(scalar.tensor);
        if (context_.dtypes[tensor] != context_.compute)
          result.text = fmt::format("{}.to(tl.{})", result.text, context_.compute);
        break;
      }
      case ScalarKind::Unary: {
        result = known.at(scalar.a);
        result.text = unary(scalar.function, indices_.assign(result, "v").text);
        break;
      }
      case ScalarKind::Binary: {
        const TileText a = known.at(scalar.a), b = known.at(scalar.b);
        result = {binary(scalar, known, integers), a.axes | b.axes, a.looped || b.looped};
        break;
      }
      case ScalarKind::Select: {
        const TileText a = known.at(scalar.a), b = known.at(scalar.b), c = known.at(scalar.c);
        result = {fmt::format("tl.where({} != 0, {}, {})", a.text, b.text, c.text), a.axes | b.axes | c.axes,
                  a.looped || b.looped || c.looped};
        break;
      }
    }
    known[id] = indices_.assign(result, "v");
  }
  return indices_.assign(known.at(root), "v");
}

std::string TileBody::unary(Function function, const std::string& a) {
  const bool single = context_.compute == "float32";
  const auto root = [&](const std::string& of) { return (single ? "tl.sqrt_rn(" : "tl.sqrt(") + of + ")"; };
  switch (function) {
    case Function::Negate:
      return "-" + a;
    case Function::Exp:
      return fmt::format("tl.exp({})", a);
    case Function::Log:
      return fmt::format("tl.log({})", a);
    case Function::Sqrt:
      return root(a);
    case Function::Rsqrt:
      return quotient(fmt::format("tl.full([], 1.0, tl.{})", context_.compute), root(a));
    case Function::Erf:
      return fmt::format("tl.erf({})", a);
    case Function::Tanh:
      return helper(single ? "_tanh" : "_tanh_wide", a);
    case Function::Sigmoid:
      return helper("_sigmoid", a);
    case Function::Relu:  // what is not a number stays
      return fmt::format("tl.where({0} < 0, 0.0, {0})", a);
    case Function::Abs:
      return fmt::format("tl.abs({})", a);
    case Function::Gelu:
      return fmt::format("{0} * (0.5 * (1.0 + tl.erf({0} * 0.7071067811865476)))", a);
    case Function::Floor:
      return fmt::format("tl.floor({})", a);
    case Function::Ceil:
      return fmt::format("tl.ceil({})", a);
    case Function::Trunc:
      return helper("_trunc", a);
    case Function::Round:
      return helper("_round", a);
    case Function::Sin:
      return fmt::format("tl.sin({})", a);
    case Function::Cos:
      return fmt::format("tl.cos({})", a);
    case Function::Atan:
      return helper(single ? "_atan" : "_atan_wide", a);
    default:
      return a;
  }
}

std::string TileBody::power(const std::string& a, const Scalar& exponent) {
  const bool whole = exponent.kind == ScalarKind::Literal && exponent.literal.integral();
  if (!whole || std::abs(exponent.literal.num()) > kMostPower) {
    fail<KernelError>(
        "to_triton",
        "a power whose exponent is {}: Triton has no power function, and only whole ones up to {} are "
        "products; write it with exp and log",
        exponent.kind == ScalarKind::Literal ? exponent.literal.to_text() : "computed", kMostPower);
  }
  const std::int64_t times = std::abs(exponent.literal.num());
  if (times == 0) return fmt::format("tl.full([], 1.0, tl.{})", context_.compute);
  std::vector<std::string> factors(static_cast<std::size_t>(times), a);
  const std::string product = fmt::format("{}", fmt::join(factors, " * "));
  if (exponent.literal.num() > 0) return product;
  return quotient(fmt::format("tl.full([], 1.0, tl.{})", context_.compute), product);
}

std::string TileBody::binary(const Scalar& scalar, const Known& known, const Known& integers) {
  const std::string a = known.at(scalar.a).text, b = known.at(scalar.b).text;
  switch (scalar.function) {
    case Function::Divide:
      return quotient(a, b);
    case Function::Maximum:
      return helper("_maximum", fmt::format("{}, {}", a, b));
    case Function::Minimum:
      return helper("_minimum", fmt::format("{}, {}", a, b));
    case Function::Power:
      return power(indices_.assign(known.at(scalar.a), "v").text, program_.scalar(scalar.b));
    case Function::Fmod:
      fail<KernelError>("to_triton", "an fmod: Triton has no exact remainder; write it with floor or trunc");
    case Function::And:
      return fmt::format("(({} != 0) & ({} != 0)).to(tl.{})", a, b, context_.compute);
    case Function::Or:
      return fmt::format("(({} != 0) | ({} != 0)).to(tl.{})", a, b, context_.compute);
    case Function::Less:
    case Function::LessEqual:
    case Function::Equal:
    case Function::NotEqual: {
      // Indices are compared as integers: a float need not hold them.
      const bool whole = integers.contains(scalar.a) && integers.contains(scalar.b);
      return fmt::format("({} {} {}).to(tl.{})", whole ? integers.at(scalar.a).text : a,
                         program::name_of(scalar.function), whole ? integers.at(scalar.b).text : b,
                         context_.compute);
    }
    default:
      return fmt::format("{} {} {}", a, program::name_of(scalar.function), b);
  }
}

}  // namespace syno::emit
