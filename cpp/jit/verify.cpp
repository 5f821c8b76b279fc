// A kernel against the interpreter, at the points where kernels go wrong and at random ones.
#include "program/verify.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "jit/check_data.hpp"
#include "jit/check_points.hpp"
#include "jit/kernel.hpp"
#include "program/points.hpp"
#include "support/error.hpp"
#include "support/memory.hpp"
#include "support/random.hpp"

namespace syno::jit {

namespace {

using nest::Buffer;
using nest::BufferKind;
using nest::Dtype;
using nest::LoopNest;

constexpr double kMostTerms = 1 << 25;  // for all points where a sum is estimated
constexpr std::size_t kLeastPoints = 32;
constexpr double kManyTerms = 1 << 20;
constexpr std::size_t kProbedPoints = 24, kLeastProbed = 4;  // by which data are chosen
constexpr double kMostProbed = kMostTerms;                   // terms for all of them

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

/// A kernel's arguments by name: inputs, then outputs, of the program.
using Arguments = std::map<std::string, void*>;
using Inputs = std::map<std::string, program::Values<double>>;
/// Runs what is checked; `found` says of which inputs the memory holds what it held in the last run of these
/// drawn ones.
using Run = std::function<void(const Arguments&, const std::set<std::string>& found)>;

/// What a kernel is compared at.
struct Place {
  std::string name;
  std::vector<Point> points, shifted;  ///< from 0; as the program counts, which may start elsewhere
  Point begin;                         ///< where it starts
  bool chosen = false;                 ///< the points are those that can be paid
};

class Verifier {
 public:
  Verifier(const LoopNest& nest, const std::vector<Buffer>& arguments, const Run& run,
           const program::Program& program, std::uint64_t seed, const Effort& effort, DrawnInputs& drawn)
      : nest_(nest),
        arguments_(arguments),
        run_(run),
        program_(program),
        drawn_(drawn),
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
      for (std::size_t d = 0; d < rank; ++d) {
        asked_at_[extent_of(place, d)].insert(at[d]);
        at[d] += place.begin[d];
      }
      const double before = computed.spent_terms();
      computed.at(place.name, {at});
      return computed.spent_terms() - before;
    };
    const double room = effort_.most_terms / static_cast<double>(place.points.size());
    // Another place along one dimension, of which nothing is known yet; and along all of them.
    Point base = place.points[place.points.size() / 2];
    // Where others were asked for, or their points moved to, what they have in common with this one is known.
    std::vector<std::set<std::int64_t>> asked;
    for (std::size_t d = 0; d < rank; ++d) asked.push_back(asked_at_[extent_of(place, d)]);
    const auto is_new = [&](std::size_t d, std::int64_t index) { return !asked[d].contains(index); };
    for (std::size_t d = 0; d < rank; ++d)
      for (const Point& at : place.points)
        if (is_new(d, at[d]) && !is_new(d, base[d])) base[d] = at[d];
    const auto elsewhere = [&](std::size_t d) {
      const auto far = [&](const Point& a, const Point& b) {
        const bool new_a = is_new(d, a[d]), new_b = is_new(d, b[d]);
        return new_a != new_b ? new_b : std::abs(a[d] - base[d]) < std::abs(b[d] - base[d]);
      };
      return (*std::max_element(place.points.begin(), place.points.end(), far))[d];
    };
    terms_of(base);
    std::vector<std::size_t> dear;
    double anew = 0;
    Point corner = base;
    for (std::size_t d = 0; d < rank; ++d) {
      Point other = base;
      corner[d] = other[d] = elsewhere(d);
      if (other == base) continue;
      const double terms = terms_of(other);
      anew = std::max(anew, terms);
      if (terms > room) dear.push_back(d);
    }
    // Points may take much only where they differ in several dimensions: a sum over the others of both.
    Point inner = corner;
    for (std::size_t d = 0; d < rank; ++d)
      if (inner[d] != base[d]) inner[d] += inner[d] > base[d] ? -1 : 1;
    anew = std::max({anew, terms_of(corner), terms_of(inner)});
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
      for (const std::int64_t index : places_along(extent_of(place, dear[0]), most)) {
        few.push_back({index});
        asked_at_[extent_of(place, dear[0])].insert(index);
      }
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
    std::vector<Drawn> inputs;
    std::vector<Memory> outputs;
    inputs.reserve(inputs_.size());
    outputs.reserve(program_.outputs.size());
    Inputs values;
    std::set<std::string> found;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      inputs.push_back(drawn_.take(i, arguments_[i], data[i], random_.fork(i)));
      if (drawn_.found(i)) found.insert(arguments_[i].name);
      values[name_of(i)] = std::move(inputs[i].values);
    }
    Arguments pointers;
    for (std::size_t i = 0; i < arguments_.size(); ++i)
      pointers[arguments_[i].name] =
          i < inputs.size() ? inputs[i].memory.first() : outputs.emplace_back(arguments_[i]).first();
    run_(pointers, found);

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
        const Memory& written = outputs[o];
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
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].values = std::move(values[name_of(i)]);
      drawn_.put(i, std::move(inputs[i]));
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
    std::int64_t elements = 0;
    const auto fill = [&](std::size_t input, const Data& choice) {
      values[name_of(input)] = input_of(arguments_[input], choice, random_.fork(input)).values;
    };
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      fill(i, best[i]);
      elements += static_cast<std::int64_t>(values[name_of(i)].data.size());
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
      for (std::size_t i = 0; i < inputs_.size(); ++i) fill(i, data[i]);
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
        for (const Data& choice : choices) {
          fill(i, choice);
          const double scored = score(values);
          if (scored > most) {
            most = scored;
            best[i] = choice;
          }
          if (most >= kAll || spent_ > kMostProbed) break;
        }
        fill(i, best[i]);
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

  const std::string& name_of(std::size_t input) const { return program_.tensor(inputs_[input]).name; }

  const LoopNest& nest_;
  const std::vector<Buffer>& arguments_;
  const Run& run_;
  const program::Program& program_;
  DrawnInputs& drawn_;
  std::vector<program::TensorId> inputs_;
  Random random_;
  Effort effort_;
  Dtype dtype_;
  std::string where_;
  std::vector<Place> places_;
  Verification result_;
  /// By extent: places along a dimension where something was asked for, or is going to be, to tell what is
  /// dear from what is only known.
  std::map<std::int64_t, std::set<std::int64_t>> asked_at_;
  double informed_ = 0;
  double multiply_adds_ = 0;  ///< of the program
  Breakpoints breakpoints_;
  double terms_ = 1;  ///< an element takes
  double spent_ = 0;  ///< terms added up to choose data
};

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

Verification verify_call(const Kernel& call, const program::Program& program, std::uint64_t seed,
                         const Effort& effort, DrawnInputs& drawn) {
  // A program's tensors are known by their place: the nest may call them by other names.
  const auto arguments = arguments_of(call.nest());
  const Run run = [&](const Arguments& given, const auto&) { run_by_name(call, given); };
  return Verifier(call.nest(), arguments, run, program, seed, effort, drawn).verify();
}

/// The program's arguments, as either of two kernels has them.
std::vector<Buffer> arguments_of(const Kernel& prepack, const Kernel& call, const program::Program& program) {
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
  return arguments;
}

Verification verify_both(const Kernel& prepack, const Kernel& call, const program::Program& program,
                         std::uint64_t seed, const Effort& effort, DrawnInputs& drawn) {
  const auto before = arguments_of(prepack.nest()), arguments = arguments_of(prepack, call, program);
  const Run run = [&](const Arguments& given, const std::set<std::string>& found) {
    const bool same = std::all_of(before.begin(), before.end(), [&](const Buffer& buffer) {
      return buffer.kind == BufferKind::Output || found.count(buffer.name) != 0;
    });
    std::vector<Memory>& packed = drawn.packed;
    const bool pack = packed.empty() || !same;
    if (pack) packed.clear();
    Arguments all = given;
    std::size_t next = 0;
    packed.reserve(before.size());
    for (const Buffer& buffer : before)
      if (buffer.kind == BufferKind::Output)
        all[buffer.name] = (pack ? packed.emplace_back(buffer) : packed[next++]).first();
    if (pack) run_by_name(prepack, all);
    run_by_name(call, all);
  };
  return Verifier(call.nest(), arguments, run, program, seed, effort, drawn).verify();
}

}  // namespace

Verification verify(const Kernel& kernel, const program::Program& program, std::uint64_t seed,
                    const Effort& effort) {
  DrawnInputs drawn;
  return verify_call(kernel, program, seed, effort, drawn);
}

Verification verify(const LoopNest& nest, const std::function<void(const Arguments&)>& run,
                    const program::Program& program, std::uint64_t seed) {
  DrawnInputs drawn;
  const auto arguments = arguments_of(nest);
  const Run always = [&](const Arguments& given, const auto&) { run(given); };
  return Verifier(nest, arguments, always, program, seed, {}, drawn).verify();
}

Verification verify(const Kernel& prepack, const Kernel& call, const program::Program& program,
                    std::uint64_t seed, const Effort& effort) {
  DrawnInputs drawn;
  return verify_both(prepack, call, program, seed, effort, drawn);
}

void draw_inputs(const Kernel* prepack, const Kernel& call, const program::Program& program,
                 std::uint64_t seed, DrawnInputs& drawn) {
  const auto arguments = prepack ? arguments_of(*prepack, call, program) : arguments_of(call.nest());
  const Random random(seed);
  const std::size_t inputs = program.inputs().size();
  for (std::size_t i = 0; i < std::min(inputs, arguments.size()); ++i)
    drawn.put(i, drawn.take(i, arguments[i], {}, random.fork(i)));
}

Verification verify(const Kernel* prepack, const Kernel& call, const program::Program& program,
                    std::uint64_t seed, const Effort& effort, DrawnInputs& drawn) {
  return prepack ? verify_both(*prepack, call, program, seed, effort, drawn)
                 : verify_call(call, program, seed, effort, drawn);
}

std::vector<Verification> verify_at_sizes(const Kernel* prepack, const std::vector<SizedKernel>& sized,
                                          std::uint64_t seed, const Effort& effort) {
  DrawnInputs drawn;
  std::vector<Verification> found;
  for (const auto& [call, program] : sized) {
    found.push_back(verify(prepack, *call, *program, seed, effort, drawn));
    if (!found.back().passed) break;
  }
  return found;
}

}  // namespace syno::jit
