#include "graph/sample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "graph/elements.hpp"
#include "support/error.hpp"
#include "support/json.hpp"

namespace syno::graph {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kSample = "sample";

enum class Between : std::uint8_t { Nearest, Linear, Cubic };
enum class Beyond : std::uint8_t { Zeros, Border, Reflection };
constexpr std::array<std::pair<std::string_view, Between>, 3> kBetween{
    {{"bilinear", Between::Linear}, {"nearest", Between::Nearest}, {"bicubic", Between::Cubic}}};
constexpr std::array<std::pair<std::string_view, Beyond>, 3> kBeyond{
    {{"zeros", Beyond::Zeros}, {"border", Beyond::Border}, {"reflection", Beyond::Reflection}}};

/// Spatial dimensions; elements around a place along one of them, and around it altogether.
constexpr std::size_t kMostAxes = 3, kMostTaps = 4;

constexpr std::size_t power_of(std::size_t base, std::size_t times) {
  return times == 0 ? 1 : base * power_of(base, times - 1);
}

constexpr std::size_t taps_of(Between between) {
  return between == Between::Nearest ? 1 : between == Between::Linear ? 2 : kMostTaps;
}

struct SamplePlan {
  Between between = Between::Linear;
  Beyond beyond = Beyond::Zeros;
  bool align = false;
  std::int64_t images = 1, channels = 1;
  std::int64_t elements = 1, places = 1;  ///< of one channel: of what is sampled, and of the result
  std::vector<std::int64_t> extents, strides;

  std::size_t axes() const { return extents.size(); }
  /// Whether 32 bits hold places in a channel, and in three axes those a few elements around it.
  bool is_small() const { return elements < (std::int64_t{1} << 28); }
};

template <class Word, std::size_t N>
Word word_of(const Json& given, std::string_view what,
             const std::array<std::pair<std::string_view, Word>, N>& words) {
  if (!given.is_string()) fail<FormatError>(kSample, "{} is a word, not {}", what, syno::described(given));
  std::vector<std::string> valid;
  for (const auto& [name, word] : words) {
    if (name == given.get<std::string>()) return word;
    valid.emplace_back(name);
  }
  throw UnknownName(kSample, unknown_name(std::string(what), given.get<std::string>(), valid));
}

SamplePlan sample_plan(const std::vector<Operand>& inputs, std::string_view attributes) {
  const Json json = parse_json(kSample, attributes);
  if (!json.is_object())
    fail<FormatError>(kSample, "the attributes are a JSON object, not {}", syno::described(json));
  SamplePlan plan;
  for (const auto& [key, value] : json.items()) {
    if (key == "mode") {
      plan.between = word_of(value, key, kBetween);
    } else if (key == "padding") {
      plan.beyond = word_of(value, key, kBeyond);
    } else if (key == "align") {
      if (!value.is_boolean())
        fail<FormatError>(kSample, "align is true or false, not {}", syno::described(value));
      plan.align = value.get<bool>();
    } else {
      throw UnknownName(kSample, unknown_name("attribute", key, {"align", "mode", "padding"}));
    }
  }
  if (inputs.size() != 2) fail<ShapeError>(kSample, "it takes 2 tensors; {} are given", inputs.size());
  const auto& [x, grid] = std::tie(inputs[0], inputs[1]);
  const std::size_t rank = x.shape.size();
  if (x.type != ElementType::F32 && x.type != ElementType::F64 && x.type != ElementType::BF16)
    fail<ShapeError>(kSample, "no samples of {}", name_of(x.type));
  if (rank < 3 || rank > 2 + kMostAxes)
    fail<ShapeError>(kSample, "a tensor (images, channels, 1 to {} dimensions) is sampled, not {}", kMostAxes,
                     described(x.shape, x.type));
  if (grid.type != x.type || grid.shape.size() != rank || grid.shape[0] != x.shape[0] ||
      grid.shape.back() != static_cast<std::int64_t>(rank) - 2)
    fail<ShapeError>(kSample, "{} does not say places in {}", described(grid.shape, grid.type),
                     described(x.shape, x.type));
  if (plan.between == Between::Cubic && rank != 4)
    fail<ShapeError>(kSample, "bicubic samples are of images, not of {}", described(x.shape, x.type));
  plan.images = x.shape[0];
  plan.channels = x.shape[1];
  plan.extents.assign(x.shape.begin() + 2, x.shape.end());
  plan.elements = program::checked_product(kSample, plan.extents);
  plan.places = program::checked_product(kSample, Shape(grid.shape.begin() + 1, grid.shape.end() - 1));
  if (plan.elements == 0 && plan.places != 0)
    fail<ShapeError>(kSample, "there are no elements in {}", described(x.shape, x.type));
  plan.strides.assign(plan.axes(), 1);
  for (std::size_t d = plan.axes(); d-- > 1;) plan.strides[d - 1] = plan.strides[d] * plan.extents[d];
  return plan;
}

/// The four elements along one axis that a place lies between, and how much of each it is.
template <class Real>
struct Neighbours {
  std::array<std::int64_t, kMostTaps> at;
  std::array<Real, kMostTaps> weight;
  std::array<bool, kMostTaps> off;  ///< outside
};

/// One axis of what is sampled. Coordinates are those of PyTorch, each operation in the type of the elements.
template <class Real>
class SampledAxis {
 public:
  SampledAxis(const SamplePlan& plan, std::size_t axis)
      : beyond_(plan.beyond),
        align_(plan.align),
        extent_(plan.extents[axis]),
        last_(static_cast<Real>(extent_ - 1)),
        low_(align_ ? Real(0) : Real(-0.5)),
        span_(align_ ? last_ : static_cast<Real>(extent_)) {}

  /// From -1 .. 1, which are the middles of the first and the last element, or their outer ends.
  Real coordinate(Real g) const {
    return align_ ? (g + 1) * (last_ / 2) : ((g + 1) * static_cast<Real>(extent_) - 1) / 2;
  }
  /// A coordinate that may be outside, as the padding has it; what is not a number stays.
  Real met(Real c) const {
    if (beyond_ == Beyond::Zeros) return c;
    if (beyond_ == Beyond::Reflection) c = reflected(c);
    return c < 0 ? Real(0) : c > last_ ? last_ : c;
  }

  /// The same of many places, one after the other in memory, of which this axis is one of `apart` numbers:
  /// loops that are vectors of places.
  template <class Element, class Read>
  void coordinates(const Element* given, std::size_t apart, std::int64_t count, Real* c, Read read) const {
    for (std::int64_t i = 0; i < count; ++i)
      c[i] = coordinate(read(given[static_cast<std::size_t>(i) * apart]));
    if (beyond_ != Beyond::Zeros)  // which way is asked once: a loop that asks is no vector
      for (std::int64_t i = 0; i < count; ++i) c[i] = met(c[i]);
    for (std::int64_t i = 0; i < count; ++i) c[i] = near_by(c[i]);
  }
  std::int64_t extent() const { return extent_; }

  /// By Keys, with -3/4.
  Neighbours<Real> cubic(Real g) const {
    Neighbours<Real> made;
    const Real c = coordinate(g), whole = c < kFarthest && c > -kFarthest ? static_cast<Real>(before(c)) : c;
    const Real t = c - whole;
    const auto near = [](Real away) { return (Real(1.25) * away - Real(2.25)) * away * away + 1; };
    const auto far = [](Real away) { return ((Real(-0.75) * away + Real(3.75)) * away - 6) * away + 3; };
    const std::array<Real, kMostTaps> weight{far(t + 1), near(t), near(1 - t), far(2 - t)};
#pragma GCC unroll 4
    for (std::size_t tap = 0; tap < kMostTaps; ++tap)
      put(made, tap, before(near_by(met(whole + static_cast<Real>(static_cast<int>(tap) - 1)))), weight[tap]);
    return made;
  }

 private:
  static constexpr Real kFarthest = Real(0x1p62);  ///< past it all numbers are whole

  void put(Neighbours<Real>& made, std::size_t tap, std::int64_t at, Real weight) const {
    made.off[tap] = static_cast<std::uint64_t>(at) >= static_cast<std::uint64_t>(extent_);
    made.at[tap] = made.off[tap] ? 0 : at;
    made.weight[tap] = made.off[tap] ? Real(0) : weight;  // which may be no number
  }
  /// A coordinate that is outside by far, or no number, as one that is outside by a few elements.
  Real near_by(Real c) const {
    const Real least = -2, most = static_cast<Real>(extent_) + 1;
    c = c > least ? c : least;
    return c < most ? c : most;
  }
  /// The whole number at or below one that 64 bits hold.
  static std::int64_t before(Real c) {
    const auto towards_zero = static_cast<std::int64_t>(c);
    return towards_zero - static_cast<std::int64_t>(c < static_cast<Real>(towards_zero));
  }
  Real reflected(Real c) const {
    if (span_ == 0) return 0 * c;
    const Real away = std::abs(c - low_);
    if (away < span_) return away + low_;  // most are: without a division
    const Real extra = std::fmod(away, span_), times = std::floor(away / span_);
    return std::fmod(times, Real(2)) == 0 ? extra + low_ : span_ - extra + low_;
  }

  Beyond beyond_;
  bool align_;
  std::int64_t extent_;
  Real last_, low_, span_;
};

/// Neighbours that are found before any channel is read: as many as stay in a near cache, of so many places
/// that what is written for them is a run of memory.
constexpr std::size_t kNeighboursTogether = 1024;

/// What is outside is a neighbour without weight: the first element, which counts only where 0 times it is
/// not 0.
template <class Real>
struct Block {
  std::array<std::int64_t, kNeighboursTogether> at;  ///< in a channel
  std::array<Real, kNeighboursTogether> weight;
  std::array<bool, kNeighboursTogether> off;  ///< outside
  bool inside = true;                         ///< all of them
};

template <class Element>
struct Sampled {
  using Real = Element;
  static Real read(Element value) { return value; }
  static Element write(Real value) { return value; }
};
template <>
struct Sampled<Brain> {
  using Real = float;
  static Real read(Brain value) { return Brain::read(value); }
  static Brain write(Real value) { return Brain::write(value); }
};

/// The elements before places of an axis, and how far behind them these are. Coordinates that are far outside
/// were brought near.
template <class Real, class Int>
void elements_before(const Real* c, std::int64_t count, Int* at, Real* behind) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto towards_zero = static_cast<Int>(c[i]);
    at[i] = towards_zero - static_cast<Int>(c[i] < static_cast<Real>(towards_zero));
    behind[i] = c[i] - static_cast<Real>(at[i]);
  }
}

/// Of the one or two nearest elements along each axis: one step after the other for all places, most of them
/// vectors, and without branches: which places are outside, no CPU foretells.
template <class Int, Between kBetween, std::size_t kAxes, class Element, class Real>
void find_nearest(const SamplePlan& plan, const std::array<SampledAxis<Real>, kAxes>& axes,
                  const Element* grid, std::int64_t count, Block<Real>& block) {
  constexpr std::size_t kTaps = taps_of(kBetween), kNeighbours = power_of(kTaps, kAxes),
                        kPlaces = kNeighboursTogether / kNeighbours;
  struct Row {
    std::array<Int, kPlaces> at;  ///< where the first tap lies in a channel, as far as this axis says
    std::array<Real, kPlaces> behind;
    std::array<Int, kPlaces> off;  ///< a bit for each tap
  };
  std::array<Row, kAxes> rows;
  std::array<Real, kPlaces> c;
  for (std::size_t d = 0; d < kAxes; ++d) {
    Row& row = rows[d];
    axes[d].coordinates(grid + (kAxes - 1 - d), kAxes, count, c.data(), Sampled<Element>::read);
    elements_before(c.data(), count, row.at.data(), row.behind.data());
    const Int extent = static_cast<Int>(axes[d].extent()), stride = static_cast<Int>(plan.strides[d]);
    if constexpr (kBetween == Between::Nearest)
      for (std::int64_t i = 0; i < count; ++i) {
        const Int next = static_cast<Int>(row.behind[i] > Real(0.5)) |
                         (static_cast<Int>(row.behind[i] == Real(0.5)) & row.at[i]);
        row.at[i] += next & 1;  // halves go to even ones
      }
    for (std::int64_t i = 0; i < count; ++i) {
      const Int at = row.at[i];
      const auto out = [&](Int place) {
        return static_cast<Int>(place < 0) | static_cast<Int>(place >= extent);
      };
      row.off[i] = kTaps == 1 ? out(at) : out(at) | (out(at + 1) << 1);
      row.at[i] = at * stride;
    }
  }
  Int any = 0;
  std::size_t n = 0;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::size_t neighbour = 0; neighbour < kNeighbours; ++neighbour, ++n) {
      Int at = 0, off = 0;
      Real weight = 1;
#pragma GCC unroll 4
      for (std::size_t d = 0; d < kAxes; ++d) {
        const std::size_t tap = kTaps == 1 ? 0 : neighbour >> (kAxes - 1 - d) & 1;
        at += rows[d].at[i] + (tap != 0 ? static_cast<Int>(plan.strides[d]) : 0);
        off |= rows[d].off[i] >> tap & 1;
        if constexpr (kTaps != 1) weight *= tap != 0 ? rows[d].behind[i] : 1 - rows[d].behind[i];
      }
      any |= off;
      block.at[n] = off != 0 ? 0 : at;
      block.weight[n] = off != 0 ? Real(0) : weight;
      block.off[n] = off != 0;
    }
  block.inside = any == 0;
}

/// Of the four nearest elements along both axes of an image.
template <class Element, class Real>
void find_cubic(const SamplePlan& plan, const std::array<SampledAxis<Real>, 2>& axes, const Element* grid,
                std::int64_t count, Block<Real>& block) {
  bool any = false;
  std::size_t n = 0;
  for (std::int64_t i = 0; i < count; ++i, grid += 2) {
    const auto rows = axes[0].cubic(Sampled<Element>::read(grid[1]));  // the last dimension comes first
    const auto columns = axes[1].cubic(Sampled<Element>::read(grid[0]));
#pragma GCC unroll 4
    for (std::size_t r = 0; r < kMostTaps; ++r)
#pragma GCC unroll 4
      for (std::size_t c = 0; c < kMostTaps; ++c, ++n) {
        const bool off = (static_cast<int>(rows.off[r]) | static_cast<int>(columns.off[c])) != 0;
        any |= off;
        block.at[n] = off ? 0 : rows.at[r] * plan.strides[0] + columns.at[c];
        block.weight[n] = rows.weight[r] * columns.weight[c];
        block.off[n] = off;
      }
  }
  block.inside = !any;
}

template <Between kBetween, std::size_t kAxes, class Element, class Real>
void find_neighbours(const SamplePlan& plan, const std::array<SampledAxis<Real>, kAxes>& axes,
                     const Element* grid, std::int64_t count, Block<Real>& block) {
  if constexpr (kBetween == Between::Cubic)
    find_cubic(plan, axes, grid, count, block);
  else if (plan.is_small())
    find_nearest<std::int32_t, kBetween, kAxes>(plan, axes, grid, count, block);
  else
    find_nearest<std::int64_t, kBetween, kAxes>(plan, axes, grid, count, block);
}

/// One channel's samples.
template <std::size_t kNeighbours, class Element, class Real>
void weigh(const Block<Real>& block, const Element* from, Element* to, std::int64_t count) {
  constexpr std::size_t kPart = std::min<std::size_t>(kNeighbours, 4);
  const auto* at = block.at.data();
  const auto* weight = block.weight.data();
  if (block.inside || Sampled<Element>::read(from[0]) * 0 == 0) {
    for (std::int64_t i = 0; i < count; ++i, at += kNeighbours, weight += kNeighbours) {
      Real sum = 0;
#pragma GCC unroll 4
      for (std::size_t k = 0; k < kNeighbours; k += kPart) {  // sums of a few, that none waits for the others
        Real part = Sampled<Element>::read(from[at[k]]) * weight[k];
#pragma GCC unroll 4
        for (std::size_t j = 1; j < kPart; ++j)
          part += Sampled<Element>::read(from[at[k + j]]) * weight[k + j];
        sum += part;
      }
      to[i] = Sampled<Element>::write(sum);
    }
    return;
  }
  const auto* off = block.off.data();
  for (std::int64_t i = 0; i < count; ++i, at += kNeighbours, weight += kNeighbours, off += kNeighbours) {
    Real sum = 0;
#pragma GCC unroll 16
    for (std::size_t k = 0; k < kNeighbours; ++k)
      if (!off[k]) sum += Sampled<Element>::read(from[at[k]]) * weight[k];
    to[i] = Sampled<Element>::write(sum);
  }
}

template <class Real, std::size_t... kAxis>
std::array<SampledAxis<Real>, sizeof...(kAxis)> axes_of(const SamplePlan& plan,
                                                        std::index_sequence<kAxis...>) {
  return {SampledAxis<Real>(plan, kAxis)...};
}

template <Between kBetween, std::size_t kAxes, class Element>
void sample_all(const SamplePlan& plan, const Element* x, const Element* grid, Element* y) {
  constexpr std::size_t kNeighbours = power_of(taps_of(kBetween), kAxes);
  constexpr auto kPlacesTogether = static_cast<std::int64_t>(kNeighboursTogether / kNeighbours);
  using Real = typename Sampled<Element>::Real;
  const auto axes = axes_of<Real>(plan, std::make_index_sequence<kAxes>());
  Block<Real> block;
  for (std::int64_t n = 0; n < plan.images; ++n)
    for (std::int64_t p = 0; p < plan.places; p += kPlacesTogether) {
      const std::int64_t count = std::min(kPlacesTogether, plan.places - p);
      const Element* places = grid + (n * plan.places + p) * static_cast<std::int64_t>(kAxes);
      find_neighbours<kBetween, kAxes>(plan, axes, places, count, block);
      for (std::int64_t c = 0; c < plan.channels; ++c) {
        const std::int64_t channel = n * plan.channels + c;
        weigh<kNeighbours>(block, x + channel * plan.elements, y + channel * plan.places + p, count);
      }
    }
}

template <Between kBetween, class Element>
void sample_all(const SamplePlan& plan, const Element* x, const Element* grid, Element* y) {
  switch (plan.axes()) {
    case 1:
      return sample_all<kBetween, 1>(plan, x, grid, y);
    case 2:
      return sample_all<kBetween, 2>(plan, x, grid, y);
    default:
      return sample_all<kBetween, 3>(plan, x, grid, y);
  }
}

template <class Element>
void sample_all(const SamplePlan& plan, const Element* x, const Element* grid, Element* y) {
  switch (plan.between) {
    case Between::Nearest:
      return sample_all<Between::Nearest>(plan, x, grid, y);
    case Between::Linear:
      return sample_all<Between::Linear>(plan, x, grid, y);
    case Between::Cubic:
      return sample_all<Between::Cubic, 2>(plan, x, grid, y);
  }
}

template <class Element>
BoundBuiltin bind_sample(SamplePlan plan) {
  return [plan = std::move(plan)](void* const* pointers) {
    sample_all(plan, static_cast<const Element*>(pointers[0]), static_cast<const Element*>(pointers[1]),
               static_cast<Element*>(pointers[2]));
  };
}

}  // namespace

Operand sample_result(const std::vector<Operand>& inputs, std::string_view attributes) {
  sample_plan(inputs, attributes);
  Operand result{inputs[0].type, {inputs[0].shape[0], inputs[0].shape[1]}};
  const Shape& grid = inputs[1].shape;
  result.shape.insert(result.shape.end(), grid.begin() + 1, grid.end() - 1);
  return result;
}

BoundBuiltin sample_bind(const std::vector<Operand>& inputs, std::string_view attributes) {
  SamplePlan plan = sample_plan(inputs, attributes);
  switch (inputs[0].type) {
    case ElementType::F64:
      return bind_sample<double>(std::move(plan));
    case ElementType::BF16:
      return bind_sample<Brain>(std::move(plan));
    default:
      return bind_sample<float>(std::move(plan));
  }
}

Values sample_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                        const std::vector<Values>& values) {
  const SamplePlan plan = sample_plan(inputs, attributes);
  Values result{sample_result(inputs, attributes).shape, {}};
  result.data.resize(static_cast<std::size_t>(plan.images * plan.channels * plan.places));
  sample_all(plan, values[0].data.data(), values[1].data.data(), result.data.data());
  return result;
}

}  // namespace syno::graph
