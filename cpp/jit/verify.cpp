// A kernel against the interpreter, at the points where kernels go wrong and at random ones.
#include "program/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "jit/kernel.hpp"
#include "program/points.hpp"
#include "support/bfloat16.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/memory.hpp"
#include "support/random.hpp"

namespace syno::jit {

namespace {

using nest::Buffer;
using nest::BufferKind;
using nest::Dtype;
using nest::LoopNest;
using Point = std::vector<std::int64_t>;

constexpr std::size_t kLargestBreakpoints = 64;  // a dimension
constexpr double kMostTerms = 1 << 25;           // for all points where a sum is estimated
constexpr std::size_t kLeastPoints = 32;
constexpr double kManyTerms = 1 << 20;
constexpr std::size_t kProbedPoints = 24, kLeastProbed = 4;  // by which data are chosen
constexpr double kMostProbed = kMostTerms;                   // terms for all of them

double rounded(Dtype dtype, double value) {
  if (dtype == Dtype::F64) return value;
  if (dtype == Dtype::F32) return static_cast<double>(static_cast<float>(value));
  return static_cast<double>(from_bfloat16(to_bfloat16(static_cast<float>(value))));
}

/// What an input's elements are made of numbers u, uniform in [-1, 1).
struct Data {
  enum class Kind : std::uint8_t {
    Around,    ///< center + size * u
    Both,      ///< sign(u) * center * 2^(2 |u| - 1): nothing near zero
    Positive,  ///< center * 2^u
  } kind = Kind::Around;
  double center = 0, size = 1;
  double of(double u) const {
    switch (kind) {
      case Kind::Around:
        return center + size * u;
      case Kind::Both:
        return std::copysign(center * std::exp2(2 * std::abs(u) - 1), u);
      case Kind::Positive:
        return center * std::exp2(u);
    }
    return u;
  }
};

/// So many numbers of a dtype: inputs of layers have millions, and drawing them is much of a check's time.
std::vector<double> drawn(std::size_t count, const Data& data, Dtype dtype, Random stream) {
  std::vector<double> values(count);
  const auto fill = [&](const auto& of) {
    if (dtype == Dtype::F32)
      for (double& value : values) value = static_cast<double>(static_cast<float>(of(2 * stream.unit() - 1)));
    else
      for (double& value : values) value = rounded(dtype, of(2 * stream.unit() - 1));
  };
  if (data.kind == Data::Kind::Around)
    fill([center = data.center, size = data.size](double u) { return center + size * u; });
  else
    fill([&](double u) { return data.of(u); });
  return values;
}

/// Calls visit(point) for every point of a shape, last index fastest.
template <class Visit>
void for_each_point(const std::vector<std::int64_t>& shape, const Visit& visit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Point at(shape.size(), 0);
  for (;;) {
    visit(at);
    std::size_t d = shape.size();
    for (; d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

/// An argument's memory as its strides want it.
class Memory {
 public:
  explicit Memory(const Buffer& buffer) : buffer_(buffer), size_(nest::byte_size(buffer.dtype)) {
    std::int64_t low = 0, high = 0;
    for (std::size_t d = 0; d < buffer.extents.size(); ++d) {
      const std::int64_t reach = std::max<std::int64_t>(buffer.extents[d] - 1, 0) * buffer.strides[d];
      (reach < 0 ? low : high) += reach;
    }
    offset_ = -low;
    // What the kernel must not touch is not a number, and what it leaves unwritten shows.
    bytes_.assign(static_cast<std::size_t>(high - low + 1) * size_, '\xff');
  }
  void* first() { return bytes_.data() + static_cast<std::size_t>(offset_) * size_; }
  /// Calls visit(place) for every element, last index fastest. A user may interrupt.
  template <class Visit>
  void for_each_place(const Visit& visit) {
    constexpr std::int64_t kPiece = 1 << 16;
    std::vector<std::int64_t> rows = buffer_.extents;
    std::int64_t row = 1, step = 0;
    if (!rows.empty()) {
      row = rows.back();
      step = buffer_.strides.back() * static_cast<std::int64_t>(size_);
      rows.pop_back();
    }
    // Dimensions that follow each other in memory are one: windows of three taps would be rows of three.
    while (!rows.empty() &&
           buffer_.strides[rows.size() - 1] * static_cast<std::int64_t>(size_) == row * step) {
      row *= rows.back();
      rows.pop_back();
    }
    for_each_point(rows, [&](const Point& at) {
      char* const begin = address(at);
      for (std::int64_t i = 0; i < row; ++i) {
        if (i % kPiece == 0) interruption_point();
        visit(begin + i * step);
      }
    });
  }
  /// Writes a number to each element, last index fastest.
  void put_all(const double* next) {
    if (buffer_.dtype == Dtype::F32)
      for_each_place([&](char* place) {
        const auto narrow = static_cast<float>(*next++);
        std::memcpy(place, &narrow, sizeof narrow);
      });
    else
      for_each_place([&](char* place) { put(place, *next++); });
  }
  void put(char* place, double value) const {
    if (buffer_.dtype == Dtype::F64) {
      std::memcpy(place, &value, sizeof value);
    } else if (const auto narrow = static_cast<float>(value); buffer_.dtype == Dtype::F32) {
      std::memcpy(place, &narrow, sizeof narrow);
    } else {
      const std::uint16_t half = to_bfloat16(narrow);
      std::memcpy(place, &half, sizeof half);
    }
  }
  /// Nothing was written there: no kernel computes these bits.
  bool untouched(const Point& at) {
    const char* place = address(at);
    return std::all_of(place, place + size_, [](char byte) { return byte == '\xff'; });
  }
  double get(const Point& at) { return take(address(at)); }
  double take(const char* place) const {
    if (buffer_.dtype == Dtype::F64) {
      double value = 0;
      std::memcpy(&value, place, sizeof value);
      return value;
    }
    if (buffer_.dtype == Dtype::F32) {
      float value = 0;
      std::memcpy(&value, place, sizeof value);
      return static_cast<double>(value);
    }
    std::uint16_t half = 0;
    std::memcpy(&half, place, sizeof half);
    return static_cast<double>(from_bfloat16(half));
  }

 private:
  char* address(const Point& at) {
    std::int64_t index = offset_;
    for (std::size_t d = 0; d < at.size(); ++d) index += at[d] * buffer_.strides[d];
    return bytes_.data() + static_cast<std::size_t>(index) * size_;
  }
  const Buffer& buffer_;
  std::size_t size_;
  std::int64_t offset_ = 0;
  std::string bytes_;
};

/// Where code changes along a dimension: its ends, the tails of loops split by any extent of the nest, and
/// the bounds of conditions.
std::vector<std::int64_t> breakpoints(const LoopNest& nest, std::int64_t extent) {
  std::set<std::int64_t> found;
  const auto around = [&](std::int64_t at) {
    for (const std::int64_t index : {at - 1, at})
      if (index >= 0 && index < extent) found.insert(index);
  };
  for (const std::int64_t near : {0, 1, 2, 3, 4}) {
    around(near);
    around(extent - near);
  }
  std::set<std::int64_t> tiles, bounds;
  for (const nest::Statement& statement : nest.statements) {
    if (statement.kind == nest::StatementKind::For) {
      const symbolic::Expr& begin = nest.arena[statement.begin];
      const symbolic::Expr& end = nest.arena[statement.end];
      if (begin.op == symbolic::Op::Constant && end.op == symbolic::Op::Constant)
        tiles.insert(end.value - begin.value);
    }
    for (const nest::Condition& condition : statement.conditions)
      bounds.insert({condition.begin, condition.end});
  }
  for (const nest::Value& value : nest.values)
    for (const nest::Condition& condition : value.guards) bounds.insert({condition.begin, condition.end});
  // Products of tile sizes are tile sizes too: splits nest.
  const std::set<std::int64_t> single = tiles;
  for (const std::int64_t a : single)
    for (const std::int64_t b : single)
      if (a > 1 && b > 1 && a < extent && b <= extent / a) tiles.insert(a * b);
  for (const std::int64_t tile : tiles) {
    if (tile < 2 || tile >= extent) continue;
    around(tile);
    around(extent / tile * tile);
  }
  for (const std::int64_t bound : bounds) {
    around(bound);
    around(extent - bound);
  }
  std::vector<std::int64_t> all(found.begin(), found.end());
  if (all.size() > kLargestBreakpoints) {
    std::vector<std::int64_t> fewer;
    for (std::size_t i = 0; i < kLargestBreakpoints; ++i)
      fewer.push_back(all[i * (all.size() - 1) / (kLargestBreakpoints - 1)]);
    all = fewer;
  }
  return all;
}

using Breakpoints = std::map<std::int64_t, std::vector<std::int64_t>>;  ///< by extent, as they are needed

std::vector<Point> points_of(const LoopNest& nest, Breakpoints& known, const std::vector<std::int64_t>& shape,
                             std::size_t random_points, Random& random) {
  std::set<Point> points;
  const std::size_t rank = shape.size();
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return {};
  const auto any = [&](std::size_t d) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(shape[d])));
  };
  const std::size_t corners = std::size_t{1} << std::min<std::size_t>(rank, 10);
  for (std::size_t corner = 0; corner < corners; ++corner) {
    Point at(rank);
    for (std::size_t d = 0; d < rank; ++d)
      at[d] = (corner >> std::min<std::size_t>(d, 63)) & 1 ? shape[d] - 1 : 0;
    points.insert(at);
  }
  for (std::size_t d = 0; d < rank; ++d) {
    if (!known.count(shape[d])) known[shape[d]] = breakpoints(nest, shape[d]);
    for (const std::int64_t index : known[shape[d]]) {
      // Once among random others, once among others that are breakpoints themselves.
      for (const bool others_break : {false, true}) {
        Point at(rank);
        for (std::size_t e = 0; e < rank; ++e) {
          at[e] = any(e);
          if (!others_break) continue;
          if (!known.count(shape[e])) known[shape[e]] = breakpoints(nest, shape[e]);
          const auto& choices = known[shape[e]];
          at[e] = choices[random.below(choices.size())];
        }
        at[d] = index;
        points.insert(at);
      }
    }
  }
  std::int64_t total = 1;
  for (const std::int64_t extent : shape) total = std::min<std::int64_t>(total * extent, 1 << 20);
  if (total <= static_cast<std::int64_t>(2 * random_points)) {
    for_each_point(shape, [&](const Point& at) { points.insert(at); });
  } else {
    for (std::size_t i = 0; i < random_points; ++i) {
      Point at(rank);
      for (std::size_t d = 0; d < rank; ++d) at[d] = any(d);
      points.insert(at);
    }
  }
  return {points.begin(), points.end()};
}

/// Of `all`, ascending, `most` at the same distances, the first and the last among them.
template <class T>
std::vector<T> evenly(const std::vector<T>& all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return some;
}

/// Terms that each element of an output takes for itself, at most: its part of the program's multiply-adds.
double terms_each(double multiply_adds, std::int64_t elements) {
  return std::max(1.0, multiply_adds / static_cast<double>(elements));
}

/// As many points as can be paid, where each takes so many terms.
std::size_t affordable(double most_terms, double terms) {
  return std::max(kLeastPoints, static_cast<std::size_t>(most_terms / std::max(1.0, terms)));
}

Dtype loosest(const LoopNest& nest) {
  Dtype found = Dtype::F64;
  for (const Buffer& buffer : nest.buffers) {
    if (buffer.dtype == Dtype::BF16) return Dtype::BF16;
    if (buffer.dtype == Dtype::F32) found = Dtype::F32;
  }
  return found;
}

program::Precision precision_of(Dtype dtype) {
  if (dtype == Dtype::F64) return {};
  program::Precision made = program::single_precision();
  if (dtype == Dtype::BF16) {
    made.stored = 0x1p-8;
    made.least = 0x1p-132;
    made.largest = 0x1.fep127;
  }
  return made;
}

double limit_of(Dtype dtype) { return dtype == Dtype::F32 ? 1e-5 : dtype == Dtype::F64 ? 1e-12 : 0x1p-8; }

/// Data for which results may leave the range of normal numbers less than for those between -1 and 1: larger,
/// smaller, of one sign, and around what the program's literals take away.
std::vector<Data> choices_of_data(const program::Program& program, Dtype dtype) {
  // A mean that is not zero first: sums of very many terms stand out from the error of their estimate.
  std::vector<Data> made{{Data::Kind::Around, 0.25, 1}, {Data::Kind::Around, 0.5, 1}};
  for (const double scale : {1.0, 4.0}) {
    made.push_back({Data::Kind::Both, scale, 1});
    made.push_back({Data::Kind::Positive, scale, 1});
    made.push_back({Data::Kind::Positive, -scale, 1});
  }
  std::set<double> literals;
  for (const program::Scalar& scalar : program.scalars)
    if (scalar.kind == program::ScalarKind::Literal && scalar.literal.finite())
      literals.insert(std::abs(scalar.literal.to_double()));
  for (const double literal : literals) {
    if (literal <= 0 || literals.size() > 12) continue;
    for (const double center : {literal, -literal, 1 / literal, -1 / literal}) {
      made.push_back({Data::Kind::Around, center, 1});
      made.push_back({Data::Kind::Both, std::abs(center), 1});
    }
  }
  for (const double center : {8.0, 32.0, 100.0, 300.0, 1000.0}) {
    made.push_back({Data::Kind::Around, center, 1});
    made.push_back({Data::Kind::Around, -center, 1});
    made.push_back({Data::Kind::Around, 0, center});
  }
  const int most = dtype == Dtype::F64 ? 900 : 112;
  for (int exponent = most / 7; exponent <= most; exponent += most / 7)
    for (const int sign : {1, -1}) made.push_back({Data::Kind::Both, std::ldexp(1.0, sign * exponent), 1});
  return made;
}

/// A kernel's arguments by name: inputs, then outputs, of the program.
using Arguments = std::map<std::string, void*>;
using Inputs = std::map<std::string, program::Values<double>>;

/// What a kernel is compared at.
struct Place {
  std::string name;
  std::vector<Point> points, shifted;  ///< from 0; as the program counts, which may start elsewhere
  Point begin;                         ///< where it starts
  bool chosen = false;                 ///< the points are those that can be paid
};

class Verifier {
 public:
  Verifier(const LoopNest& nest, const std::vector<Buffer>& arguments,
           const std::function<void(const Arguments&)>& run, const program::Program& program,
           std::uint64_t seed, const Effort& effort)
      : nest_(nest),
        arguments_(arguments),
        run_(run),
        program_(program),
        inputs_(program.inputs()),
        random_(seed),
        effort_(effort),
        dtype_(loosest(nest)) {
    where_ = "verify " + nest.name;
    check_arguments();
    multiply_adds_ = static_cast<double>(program::cost(program, 0).flops);
    for (std::size_t o = 0; o < program.outputs.size(); ++o) places_.push_back(place_of(o));
  }

  Verification verify() {
    result_.limit = limit_of(dtype_);
    std::vector<Data> data(inputs_.size());
    compare(data);
    // Where most results tell nothing of the kernel, being zero, infinite or no numbers, other data do.
    if (result_.points > 0 && informed_ < kEnough * static_cast<double>(result_.points)) {
      const std::vector<Data> chosen = better_data();
      if (!chosen.empty()) compare(chosen);
    }
    result_.passed = result_.max_rel_err <= result_.limit;
    return result_;
  }

 private:
  static constexpr double kEnough = 0.5;

  void check_arguments() {
    if (arguments_.size() != inputs_.size() + program_.outputs.size())
      fail<KernelError>(where_, "the kernel has {} arguments, the program {} inputs and {} outputs",
                        arguments_.size(), inputs_.size(), program_.outputs.size());
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const Buffer& buffer = arguments_[i];
      const bool input = i < inputs_.size();
      const program::TensorId tensor = input ? inputs_[i] : program_.outputs[i - inputs_.size()];
      const auto shape = program::shape_of(program_, tensor);
      if (shape != buffer.extents || (buffer.kind == BufferKind::Input) != input)
        fail<KernelError>(where_,
                          "argument {} of the kernel, `{}`, has shape [{}]; the program's `{}` has [{}]", i,
                          buffer.name, fmt::join(buffer.extents, ", "), program_.tensor(tensor).name,
                          fmt::join(shape, ", "));
    }
    // Twice: the kernel's memory, and the interpreter's values of the inputs.
    for (const Buffer& buffer : arguments_)
      require_memory(where_, fmt::format("`{}` of shape [{}]", buffer.name, fmt::join(buffer.extents, ", ")),
                     program::checked_product(where_, buffer.extents),
                     static_cast<std::int64_t>(nest::byte_size(buffer.dtype) +
                                               (buffer.kind == BufferKind::Input ? sizeof(double) : 0)));
  }

  Place place_of(std::size_t output) {
    const program::TensorId tensor = program_.outputs[output];
    Place made;
    made.name = program_.tensor(tensor).name;
    const auto shape = program::shape_of(program_, tensor);
    Random stream = random_.fork(made.name);
    made.points = points_of(nest_, breakpoints_, shape, effort_.random_points, stream);
    if (made.points.empty()) return made;
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    const double each = terms_each(multiply_adds_, elements);
    terms_ = std::max(terms_, each);
    for (const program::Scope& scope : program_.scopes)
      if (scope.output == tensor && !scope.target.empty()) {
        made.points = evenly(made.points, affordable(effort_.most_terms, each));
        made.chosen = true;
      }
    for (const program::Range& dim : program_.tensor(tensor).dims)
      made.begin.push_back(*symbolic::evaluate(program_.arena, dim.begin, program_.sizes, 0, {}));
    shift(made);
    return made;
  }

  static void shift(Place& place) {
    place.shifted = place.points;
    for (Point& at : place.shifted)
      for (std::size_t d = 0; d < at.size(); ++d) at[d] += place.begin[d];
  }

  /// Keeps what can be paid. What points have in common is computed once: results of a normalisation that
  /// differ in their place, not in their channel, share the channel's mean. So in dimensions along which
  /// another point takes more than there is for each, points are moved to a few places; in others they stay.
  void keep_affordable(Place& place, program::PointReference& computed) {
    place.chosen = true;
    const std::size_t rank = place.begin.size();
    if (place.points.size() <= kLeastPoints || rank == 0) return;
    const auto terms_of = [&](Point at) {
      for (std::size_t d = 0; d < rank; ++d) at[d] += place.begin[d];
      const double before = computed.spent_terms();
      computed.at(place.name, {at});
      return computed.spent_terms() - before;
    };
    const double room = effort_.most_terms / static_cast<double>(place.points.size());
    // Another place along one dimension, of which nothing is known yet; and along all of them.
    const Point base = place.points[place.points.size() / 2];
    const auto elsewhere = [&](std::size_t d) {
      const auto far = [&](const Point& a, const Point& b) {
        return std::abs(a[d] - base[d]) < std::abs(b[d] - base[d]);
      };
      return (*std::max_element(place.points.begin(), place.points.end(), far))[d];
    };
    terms_of(base);
    std::vector<std::size_t> dear;
    Point corner = base;
    for (std::size_t d = 0; d < rank; ++d) {
      Point other = base;
      corner[d] = other[d] = elsewhere(d);
      if (other != base && terms_of(other) > room) dear.push_back(d);
    }
    // Points may take much only where they differ in several dimensions: a sum over the others of both.
    Point inner = corner;
    for (std::size_t d = 0; d < rank; ++d)
      if (inner[d] != base[d]) inner[d] += inner[d] > base[d] ? -1 : 1;
    const double anew = std::max(terms_of(corner), terms_of(inner));
    if (dear.empty() && anew > room)
      for (std::size_t d = 0; d < rank; ++d) dear.push_back(d);
    if (dear.empty()) return;

    const auto part = [&](const Point& at) {
      Point kept;
      for (const std::size_t d : dear) kept.push_back(at[d]);
      return kept;
    };
    std::set<Point> all;
    for (const Point& at : place.points) all.insert(part(at));
    std::vector<Point> places(all.begin(), all.end()), few;
    const std::size_t most = affordable(effort_.most_terms, anew);
    if (dear.size() == 1) {
      for (const std::int64_t index : places_along(extent_of(place, dear[0]), most)) few.push_back({index});
    } else {
      few = evenly(places, most);
    }
    std::map<Point, Point> moved;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto next = std::lower_bound(few.begin(), few.end(), places[i]);
      moved[places[i]] = next == few.end() ? few.back() : *next;
    }
    std::set<Point> kept;
    for (Point at : place.points) {
      const Point to = moved.at(part(at));
      for (std::size_t k = 0; k < dear.size(); ++k) at[dear[k]] = to[k];
      kept.insert(std::move(at));
    }
    // Where all dimensions count, a point is a place.
    place.points.assign(kept.begin(), kept.end());
    if (dear.size() == rank) place.points = evenly(place.points, most);
    shift(place);
  }

  /// As many places of a dimension, ascending: where code changes, then others spread over it. By the extent
  /// alone, so that outputs that share what is dear share the places, too.
  std::vector<std::int64_t> places_along(std::int64_t extent, std::size_t most) const {
    constexpr double kGolden = 0.6180339887498949;
    const std::vector<std::int64_t> breaks = evenly(breakpoints_.at(extent), most);
    std::set<std::int64_t> found(breaks.begin(), breaks.end());
    for (std::int64_t k = 1; found.size() < most && k <= extent; ++k) {
      const double part = static_cast<double>(k) * kGolden;
      found.insert(static_cast<std::int64_t>((part - std::floor(part)) * static_cast<double>(extent)));
    }
    return {found.begin(), found.end()};
  }

  std::int64_t extent_of(const Place& place, std::size_t d) const {
    return program::shape_of(program_, *program_.find_tensor(place.name))[d];
  }

  /// An input's values as its memory holds them: views may show an element at several places.
  program::Values<double> filled(std::size_t input, const Data& data, Memory& memory) const {
    const Buffer& buffer = arguments_[input];
    std::size_t count = 1;
    for (const std::int64_t extent : buffer.extents) count *= static_cast<std::size_t>(extent);
    program::Values<double> made{buffer.extents, drawn(count, data, buffer.dtype, random_.fork(input))};
    memory.put_all(made.data.data());
    if (nest::strides_overlap(buffer.extents, buffer.strides)) {  // what was put there last
      made.data.clear();
      memory.for_each_place([&](const char* place) { made.data.push_back(memory.take(place)); });
    }
    return made;
  }

  /// One for all outputs: what they have in common is computed once.
  program::PointReference reference(const Inputs& values, std::size_t points, double most_terms) const {
    program::PointOptions options;
    options.precision = precision_of(dtype_);
    options.most_terms = most_terms / static_cast<double>(std::clamp<std::size_t>(points, 1, kLeastPoints));
    return {program_, values, options};
  }

  /// Whether a kernel that computes something else would be seen at a point.
  bool informs(double value, const program::Allowed& allowed) const {
    if (!std::isfinite(value) || allowed.nan) return false;
    // Sums of millions of terms are not known better, whatever the data.
    const double part = terms_ < kManyTerms ? 1.0 / 32 : 1.0 / 4;
    return allowed.high - allowed.low <= part * std::abs(value);
  }

  void compare(const std::vector<Data>& data) {
    std::vector<Memory> memory;
    memory.reserve(arguments_.size());
    Inputs values;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      memory.emplace_back(arguments_[i]);
      if (i < inputs_.size()) values[program_.tensor(inputs_[i]).name] = filled(i, data[i], memory[i]);
    }
    Arguments pointers;
    for (std::size_t i = 0; i < arguments_.size(); ++i) pointers[arguments_[i].name] = memory[i].first();
    run_(pointers);

    std::int64_t points = 0;
    double worst = 0;
    std::string detail;
    std::size_t most_points = 0;
    for (const Place& place : places_) most_points = std::max(most_points, place.points.size());
    program::PointReference computed = reference(values, most_points, kMostTerms);
    for (std::size_t o = 0; o < places_.size(); ++o) {
      Place& place = places_[o];
      if (place.points.empty()) continue;
      if (!place.chosen) keep_affordable(place, computed);
      std::int64_t excused = 0;
      const auto most_excused = static_cast<std::int64_t>(place.points.size() / 100);
      const program::AllowedValues wanted = computed.at(place.name, place.shifted);
      for (std::size_t i = 0; i < place.points.size(); ++i) {
        Memory& written = memory[inputs_.size() + o];
        const double got = written.get(place.points[i]);
        const auto& allowed = wanted.allowed[i];
        double error = written.untouched(place.points[i])
                           ? std::numeric_limits<double>::infinity()
                           : error_of(got, wanted.reference.values[i], allowed);
        // A comparison that rounding turns the other way now and then; in many places it is a mistake.
        if (error > result_.limit && allowed.guessed && ++excused <= most_excused) error = 0;
        ++points;
        if (informs(wanted.reference.values[i], allowed)) ++informed_;
        if (detail.empty() || error > worst) {
          worst = std::max(worst, error);
          detail = fmt::format("{}[{}] = {:.9g}, reference {:.9g}", place.name,
                               fmt::join(place.points[i], ", "), got, wanted.reference.values[i]);
        }
      }
    }
    result_.points += points;
    if (result_.detail.empty() || worst > result_.max_rel_err) result_.detail = detail;
    result_.max_rel_err = std::max(result_.max_rel_err, worst);
  }

  /// The difference in units such that the limit is the end of what is allowed.
  double error_of(double got, double wanted, const program::Allowed& allowed) const {
    constexpr double kWrong = std::numeric_limits<double>::infinity();
    if (std::isnan(got)) return allowed.nan ? 0 : kWrong;
    if (!(allowed.low <= got && got <= allowed.high)) {
      if (!std::isfinite(wanted) || !std::isfinite(got)) return kWrong;
      const double room = got > wanted ? allowed.high - wanted : wanted - allowed.low;
      if (!(room > 0) || !std::isfinite(room)) return kWrong;
      return std::max(result_.limit * (std::abs(got - wanted) / room), std::nextafter(result_.limit, 1));
    }
    const double apart = std::abs(got - wanted);
    const double room = got > wanted ? allowed.high - wanted : wanted - allowed.low;
    if (apart == 0 || !std::isfinite(room) || !std::isfinite(apart) || !(room > 0)) return 0;
    return result_.limit * std::min(1.0, apart / room);
  }

  /// Of the choices for each input, one after the other, those for which most points inform; empty where no
  /// choice is better than the first data.
  std::vector<Data> better_data() {
    std::vector<Data> best(inputs_.size());
    Inputs values;
    std::vector<Memory> memory;
    memory.reserve(inputs_.size());
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      memory.emplace_back(arguments_[i]);
      values[program_.tensor(inputs_[i]).name] = filled(i, best[i], memory[i]);
      elements += static_cast<std::int64_t>(values[program_.tensor(inputs_[i]).name].data.size());
    }
    std::vector<Data> choices = choices_of_data(program_, dtype_);
    constexpr std::int64_t kMostElements = std::int64_t{1} << 26;  // made for all choices: a second or two
    const auto affordable = static_cast<std::size_t>(
        std::max<std::int64_t>(4, kMostElements / std::max<std::int64_t>(elements, 1)));
    if (choices.size() > affordable) choices.resize(affordable);
    const double first = score(values);
    double most = first;
    constexpr double kAll = 0.95;
    const auto fill_all = [&](const std::vector<Data>& data) {
      for (std::size_t i = 0; i < inputs_.size(); ++i)
        values[program_.tensor(inputs_[i]).name] = filled(i, data[i], memory[i]);
    };
    for (const Data& choice : choices) {  // the same for all first: a sum of products needs both of one sign
      if (inputs_.size() < 2 || most >= kAll || spent_ > kMostProbed) break;
      const std::vector<Data> same(inputs_.size(), choice);
      fill_all(same);
      const double scored = score(values);
      if (scored > most) {
        most = scored;
        best = same;
      }
    }
    fill_all(best);
    for (int round = 0; round < 2 && most < kAll; ++round) {
      const double before = most;
      for (std::size_t i = 0; i < inputs_.size() && most < kAll; ++i) {
        program::Values<double>& of_input = values[program_.tensor(inputs_[i]).name];
        for (const Data& choice : choices) {
          of_input = filled(i, choice, memory[i]);
          const double scored = score(values);
          if (scored > most) {
            most = scored;
            best[i] = choice;
          }
          if (most >= kAll || spent_ > kMostProbed) break;
        }
        of_input = filled(i, best[i], memory[i]);
      }
      if (most == before) break;
    }
    return most > first ? best : std::vector<Data>{};
  }

  /// The part of some points that inform, less where they all have one value.
  double score(const Inputs& values) {
    constexpr double kTerms = kMostTerms / 16;
    double informed = 0, points = 0;
    std::set<double> distinct;
    program::PointReference computed = reference(values, kProbedPoints, kTerms);
    for (std::size_t o = 0; o < places_.size(); ++o) {
      const Place& place = places_[o];
      // As many as can be paid, a few at least.
      const double room = kTerms * static_cast<double>(o + 1) / static_cast<double>(places_.size());
      std::size_t asked = 0;
      const std::size_t step = std::max<std::size_t>(1, place.shifted.size() / kProbedPoints);
      for (std::size_t i = 0; i < place.shifted.size(); i += step) {
        if (asked++ >= kLeastProbed && computed.spent_terms() > room) break;
        const program::AllowedValues found = computed.at(place.name, {place.shifted[i]});
        points += 1;
        if (!informs(found.reference.values[0], found.allowed[0])) continue;
        informed += 1;
        distinct.insert(found.reference.values[0]);
      }
    }
    spent_ += computed.spent_terms();
    if (points == 0) return 0;
    return informed / points * (distinct.size() > 1 || points == 1 ? 1 : 0.5);
  }

  const LoopNest& nest_;
  const std::vector<Buffer>& arguments_;
  const std::function<void(const Arguments&)>& run_;
  const program::Program& program_;
  std::vector<program::TensorId> inputs_;
  Random random_;
  Effort effort_;
  Dtype dtype_;
  std::string where_;
  std::vector<Place> places_;
  Verification result_;
  double informed_ = 0;
  double multiply_adds_ = 0;  ///< of the program
  Breakpoints breakpoints_;
  double terms_ = 1;  ///< an element takes
  double spent_ = 0;  ///< terms added up to choose data
};

Verification verify_run(const LoopNest& nest, const std::vector<Buffer>& arguments,
                        const std::function<void(const Arguments&)>& run, const program::Program& program,
                        std::uint64_t seed, const Effort& effort) {
  return Verifier(nest, arguments, run, program, seed, effort).verify();
}

std::vector<Buffer> arguments_of(const LoopNest& nest) {
  std::vector<Buffer> buffers;
  for (const nest::BufferId id : nest::arguments(nest)) buffers.push_back(nest.buffer(id));
  return buffers;
}

void run_by_name(const Kernel& kernel, const Arguments& arguments) {
  kernel.require_runs_here();
  std::vector<void*> pointers;
  for (const Buffer& buffer : arguments_of(kernel.nest())) pointers.push_back(arguments.at(buffer.name));
  kernel.call_unchecked(pointers.data(), 1);
}

}  // namespace

Verification verify(const Kernel& kernel, const program::Program& program, std::uint64_t seed,
                    const Effort& effort) {
  const auto arguments = arguments_of(kernel.nest());
  // A program's tensors are known by their place: the nest may call them by other names.
  return verify_run(
      kernel.nest(), arguments, [&](const Arguments& at) { run_by_name(kernel, at); }, program, seed, effort);
}

Verification verify(const LoopNest& nest, const std::function<void(const Arguments&)>& run,
                    const program::Program& program, std::uint64_t seed) {
  return verify_run(nest, arguments_of(nest), run, program, seed, {});
}

Verification verify(const Kernel& prepack, const Kernel& call, const program::Program& program,
                    std::uint64_t seed, const Effort& effort) {
  const auto before = arguments_of(prepack.nest()), during = arguments_of(call.nest());
  const auto named = [&](const std::string& name) -> Buffer {
    for (const auto* buffers : {&during, &before})
      for (const Buffer& buffer : *buffers)
        if (buffer.name == name) return buffer;
    Buffer unused;  // an input nothing reads
    unused.name = name;
    unused.extents = program::shape_of(program, *program.find_tensor(name));
    unused.strides = nest::row_major_strides(unused.extents);
    return unused;
  };
  std::vector<Buffer> arguments;
  for (const program::TensorId id : program.inputs()) arguments.push_back(named(program.tensor(id).name));
  for (const program::TensorId id : program.outputs) arguments.push_back(named(program.tensor(id).name));
  const auto run = [&](const Arguments& given) {
    Arguments all = given;
    std::vector<Memory> packed;
    packed.reserve(before.size());
    for (const Buffer& buffer : before)
      if (buffer.kind == BufferKind::Output) all[buffer.name] = packed.emplace_back(buffer).first();
    run_by_name(prepack, all);
    run_by_name(call, all);
  };
  return verify_run(call.nest(), arguments, run, program, seed, effort);
}

}  // namespace syno::jit
