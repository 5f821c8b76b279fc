// Single elements of a program's outputs, computed as they are asked for.
#include "program/points.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "program/evaluator.hpp"
#include "program/interpret_inputs.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/random.hpp"
#include "support/zeros.hpp"

namespace syno::program {
namespace detail {
namespace {

// Computes single elements of a program's tensors, and of intermediates only those asked for.
class PointMachine {
 public:
  PointMachine(const Program& program, const std::map<std::string, Values<double>>& inputs,
               const PointOptions& options)
      : program_(program),
        numbers_(options.precision),
        data_(program.tensors.size()),
        scopes_(program.tensors.size()) {
    for (std::size_t t = 0; t < program.tensors.size(); ++t) {
      const Tensor& tensor = program.tensors[t];
      if (tensor.role == Role::Constant)
        for (const Rational& value : tensor.literal) data_[t].literal.push_back(value.to_double());
      data_[t].constant = tensor.role == Role::Constant;
      data_[t].shape = shape_of(program, TensorId{static_cast<std::uint32_t>(t)});
      data_[t].strides = strides_of(data_[t].shape);
      for (const Range& dim : tensor.dims) data_[t].begin.push_back(extent_of(program, dim, 0).begin);
      if (tensor.role == Role::Constant)
        data_[t].values = data_[t].literal.data();
      else if (tensor.role != Role::Computed)
        data_[t].values = inputs.at(tensor.name).data.data();
    }
    for (const Scope& scope : program.scopes) scopes_[static_cast<std::size_t>(scope.output)] = &scope;
    for (const TensorId id : program.outputs) data_[static_cast<std::size_t>(id)].is_output = true;
    work_ = work_of_elements();
    choose_kept();
    for (const TensorId id : program.outputs)
      if (scopes_[static_cast<std::size_t>(id)] != nullptr)
        limit(static_cast<std::uint32_t>(id), options.most_terms);
  }

  /// An element of an output.
  Tracked element(std::uint32_t tensor, std::int64_t offset) {
    std::vector<Deeper> first{{tensor, offset}};
    for (;;) {
      try {
        depth_ = 0;
        const Tracked value = read(first.back().tensor, first.back().offset);
        first.pop_back();
        if (first.empty()) return value;
      } catch (const Deeper& met) {
        first.push_back(met);
      }
    }
  }

  /// An element that others are made of: computed when first asked for.
  Tracked read(std::uint32_t tensor, std::int64_t offset) {
    TensorState& state = data_[tensor];
    if (state.constant) return numbers_.from(state.values[offset]);
    if (state.values) return TrackedNumbers::loaded(state.values[offset]);
    if (!scopes_[tensor]->target.empty()) {
      if (!state.accumulated) {
        if (++depth_ > kDeepest) throw Deeper{tensor, offset};
        accumulate(tensor, nullptr);
        --depth_;
      }
      return state.sums[static_cast<std::size_t>(offset)];
    }
    if (state.kept)
      if (const Tracked* known = state.memo.find(offset)) {
        if (state.memo.met(offset)) spent_ += static_cast<double>(state.evaluator->code().sum_points);
        return *known;
      }
    if (++depth_ > kDeepest) throw Deeper{tensor, offset};
    const Tracked value = compute(tensor, offset);
    --depth_;
    if (state.kept) state.memo.set(offset, value, state);
    return value;
  }

  double spent_terms() const { return spent_; }

  bool accumulates(std::uint32_t tensor) const { return !scopes_[tensor]->target.empty(); }

  std::int64_t offset_of(TensorId id, const std::vector<std::int64_t>& point) const {
    const TensorState& state = data_[static_cast<std::size_t>(id)];
    std::int64_t offset = 0;
    bool inside = point.size() == state.shape.size();
    for (std::size_t d = 0; inside && d < point.size(); ++d) {
      const std::int64_t index = point[d] - state.begin[d];
      inside = index >= 0 && index < state.shape[d];
      offset += index * state.strides[d];
    }
    if (!inside)
      fail<ShapeError>(kInterpret, "point [{}] is not one of '{}', whose shape is [{}]",
                       fmt::join(point, ", "), program_.tensor(id).name, fmt::join(state.shape, ", "));
    return offset;
  }

  /// Runs an output's accumulating scope for the elements at `wanted` offsets; gives all sums, of which
  /// others are not known.
  const std::vector<Tracked>& accumulated(std::uint32_t tensor,
                                          const std::unordered_set<std::int64_t>& wanted) {
    while (!data_[tensor].accumulated) {
      try {
        depth_ = 0;
        accumulate(tensor, &wanted);
        break;
      } catch (const Deeper& met) {
        element(met.tensor, met.offset);
      }
    }
    return data_[tensor].sums;
  }

 private:
  /// Elements are computed within each other as they are needed, up to so many; a deeper one is met by giving
  /// up, computing that one first (what it is made of is remembered), and beginning again.
  static constexpr int kDeepest = 1000;
  struct Deeper {
    std::uint32_t tensor;
    std::int64_t offset;
  };

  /// Runs an accumulating scope, computing only what lands on `wanted` offsets (all when null).
  void accumulate(std::uint32_t tensor, const std::unordered_set<std::int64_t>* wanted) {
    TensorState& state = data_[tensor];
    state.sums.assign(element_count(program_, TensorId{tensor}, sizeof(Tracked)),
                      TrackedNumbers::start(Reduction::Sum));
    std::vector<std::int64_t> terms(state.sums.size());
    Evaluator<Tracked>& evaluator = evaluator_of(tensor);
    const ScopeCode& code = evaluator.code();
    const std::vector<std::int64_t> begin(
        code.begin.begin(), code.begin.begin() + static_cast<std::ptrdiff_t>(code.traversal_count));
    std::vector<std::int64_t> point = begin;
    do {
      interruption_point();
      std::int64_t offset = 0;
      evaluator.move_to(point.data());
      if (!evaluator.target(offset) || (wanted && !wanted->contains(offset))) continue;
      numbers_.fold(Reduction::Sum, state.sums[static_cast<std::size_t>(offset)], evaluator.value(loader()));
      ++terms[static_cast<std::size_t>(offset)];
    } while (advance(point, begin, code.extent));
    for (std::size_t i = 0; i < terms.size(); ++i)
      if (terms[i] > 0)
        state.sums[i] = finished(state, numbers_.finish(Reduction::Sum, state.sums[i], terms[i]));
    state.accumulated = wanted == nullptr;
  }

  struct TensorState;

  static constexpr std::int64_t kDenseElements = 1 << 22;

  // Dense where a part of a tensor of a usual size is known: an element is looked up far more often than it
  // is computed. Of a few elements a table would take longer to make than to use.
  struct Memo {
    Zeros<Tracked> dense;
    Zeros<std::uint8_t> known;                         // 1; 2: before anybody asked for it
    std::unordered_map<std::int64_t, Tracked> sparse;  // its order reaches nothing

    const Tracked* find(std::int64_t offset) const;
    void set(std::int64_t offset, const Tracked& value, const TensorState& state);
    /// Of a dense table, what is not known yet.
    void set_ahead(std::int64_t offset, const Tracked& value) {
      const auto at = static_cast<std::size_t>(offset);
      if (known[at] != 0) return;
      dense[at] = value;
      known[at] = 2;
    }
    /// Whether what is known was never asked for until now.
    bool met(std::int64_t offset) {
      if (!dense || known[static_cast<std::size_t>(offset)] != 2) return false;
      known[static_cast<std::size_t>(offset)] = 1;
      return true;
    }
  };
  /// Elements that were asked for one after the other along a dimension: those behind them are likely to be
  /// asked for next, as many as were.
  struct Streak {
    std::int64_t last = -1;  ///< offset of the last one
    std::size_t dim = 0;
    std::int64_t length = 0;  ///< 0: none
    bool from_begin = false;  ///< of the dimension
    bool whole_rows = false;  ///< the last one had all of the dimension
  };
  struct TensorState {
    const double* values = nullptr;
    std::vector<double> literal;
    std::vector<std::int64_t> shape, strides, begin;
    Memo memo;
    bool constant = false, is_output = false;
    bool kept = true;                 ///< what is known of its elements
    std::vector<std::int64_t> point;  ///< of the element that is computed
    std::optional<bool> finite;       ///< all of `values`; nothing: nobody asked
    double most = 1e300;
    std::int64_t estimated_from = 0;  ///< terms; 0: all of them are added up
    bool accumulated = false;
    std::vector<Tracked> sums;
    std::unique_ptr<Evaluator<Tracked>> evaluator;
    Streak streak;
    std::unique_ptr<Planes> planes;
    std::vector<Tracked> run;  ///< elements made at once
  };

  /// The elements of a tensor that is given, or what is known of those that are computed.
  Elements elements(std::uint32_t tensor, bool finite) {
    TensorState& state = data_[tensor];
    if (state.constant) return {};
    if (state.values == nullptr) {
      Elements computed;
      computed.computed = state.memo.dense.get();
      computed.known = state.memo.known.get();
      return computed;
    }
    if (finite && !state.finite) {
      const double* end = state.values + checked_product(kInterpret, state.shape);
      state.finite = std::all_of(state.values, end, [](double value) { return std::isfinite(value); });
    }
    return {state.values, state.finite.value_or(false), nullptr, nullptr};
  }

  struct Loader {
    PointMachine* machine;
    Tracked operator()(std::uint32_t tensor, std::int64_t offset) const {
      return machine->read(tensor, offset);
    }
    Elements elements(std::uint32_t tensor, bool finite) const { return machine->elements(tensor, finite); }
    const Planes* planes(std::uint32_t tensor, std::int64_t first, std::int64_t step,
                         std::int64_t count) const {
      return machine->planes(tensor, first, step, count);
    }
  };
  Loader loader() { return {this}; }

  /// The planes that hold these elements; null where one is no usual number, or they would be too large.
  const Planes* planes(std::uint32_t tensor, std::int64_t first, std::int64_t step, std::int64_t count) {
    TensorState& state = data_[tensor];
    if (!state.planes) {
      const std::int64_t elements = checked_product(kInterpret, state.shape);
      if (elements > kDenseElements) return nullptr;
      state.planes = std::make_unique<Planes>(static_cast<std::size_t>(elements));
    }
    Planes& planes = *state.planes;
    if (planes.all_usual(first, step, count)) return &planes;
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t offset = first + k * step;
      const std::uint8_t& known = planes.state[static_cast<std::size_t>(offset)];
      if (known == Planes::Unknown) planes.put(offset, read(tensor, offset), numbers_.precision());
      if (known == Planes::Unusual) return nullptr;
    }
    return &planes;
  }

  /// How many elements from the one at `offset` on, along the dimension of the streak, are computed at once.
  std::int64_t likely(TensorState& state, Evaluator<Tracked>& evaluator, std::int64_t offset) {
    Streak& streak = state.streak;
    const auto place = [&](std::size_t d) { return state.point[d] - state.begin[d]; };
    const std::int64_t apart = offset - streak.last;
    std::int64_t count = 1;
    if (streak.length > 0 && apart == state.strides[streak.dim] && place(streak.dim) > 0) {
      count = streak.length++;
    } else if (streak.whole_rows && place(streak.dim) == 0) {
      count = state.shape[streak.dim];
      streak.length = 1;
    } else {
      streak.length = 0;
      for (std::size_t d = 0; streak.last >= 0 && streak.length == 0 && d < state.shape.size(); ++d)
        if (apart == state.strides[d] && place(d) > 0 && evaluator.has_values(d)) {
          streak.dim = d;
          streak.length = 2;
          streak.from_begin = place(d) == 1;
        }
      streak.whole_rows = false;
    }
    streak.last = offset;
    if (streak.length == 0) return 1;
    const std::int64_t left = state.shape[streak.dim] - place(streak.dim);
    count = std::min(count, left);
    streak.length += count - 1;
    streak.whole_rows = (streak.whole_rows || streak.from_begin) && count == left;
    streak.last += (count - 1) * state.strides[streak.dim];
    return count;
  }

  Evaluator<Tracked>& evaluator_of(std::uint32_t tensor) {
    TensorState& state = data_[tensor];
    if (!state.evaluator)
      state.evaluator = std::make_unique<Evaluator<Tracked>>(program_, *scopes_[tensor], numbers_);
    return *state.evaluator;
  }

  Tracked compute(std::uint32_t tensor, std::int64_t offset) {
    TensorState& state = data_[tensor];
    std::vector<std::int64_t>& point = state.point;
    point.resize(state.shape.size());
    std::int64_t left = offset;
    for (std::size_t d = 0; d < point.size(); ++d) {
      point[d] = state.begin[d] + left / state.strides[d];
      left %= state.strides[d];
    }
    Evaluator<Tracked>& evaluator = evaluator_of(tensor);
    evaluator.move_to(point.data());
    spent_ +=
        static_cast<double>(state.estimated_from == 0 ? evaluator.code().sum_points : state.estimated_from);
    if (state.estimated_from == 0) {
      // What lies behind it is computed with it where it is likely to be asked for.
      if (const std::int64_t count = state.memo.dense ? likely(state, evaluator, offset) : 1; count > 1) {
        const std::int64_t step = state.strides[state.streak.dim];
        if (evaluator.values(state.streak.dim, count, loader(), state.run)) {
          for (std::int64_t k = 1; k < count; ++k)
            state.memo.set_ahead(offset + k * step, finished(state, state.run[static_cast<std::size_t>(k)]));
          return finished(state, state.run[0]);
        }
        evaluator.move_to(point.data());
      }
      return finished(state, evaluator.value(loader()));
    }
    // The same terms for all sums over such ranges: a mean and a variance read the same elements.
    Random stream = random_;
    const ScopeCode& code = evaluator.code();
    for (std::size_t i = code.traversal_count; i < code.extent.size(); ++i)
      stream = stream.fork(static_cast<std::uint64_t>(code.extent[i]));
    stream = stream.fork(static_cast<std::uint64_t>(offset));
    return finished(state, evaluator.estimate(loader(), state.estimated_from, stream));
  }

  Tracked finished(const TensorState& state, const Tracked& value) const {
    return state.is_output ? numbers_.stored(value) : value;
  }

  std::vector<std::uint32_t> read_by(const Scope& scope) const {
    std::vector<std::uint32_t> tensors;
    over_reads(program_, scope.body, [&](ScalarId, const Scalar& read) {
      tensors.push_back(static_cast<std::uint32_t>(read.tensor));
    });
    return tensors;
  }
  double points_over(const std::vector<Iterator>& iterators) const {
    double points = 1;
    for (const Iterator& i : iterators) {
      const Extent extent = extent_of(program_, i.range, 0);
      points *= static_cast<double>(extent.end - extent.begin);
    }
    return points;
  }
  double terms_of(const Scope& scope) const { return points_over(scope.sums); }
  double elements_of(const Scope& scope) const { return points_over(scope.traversal); }

  struct Work {
    double element = 0;  ///< terms added up for one element, those of what it is made of included
    double whole = 0;    ///< for all of them
  };
  std::vector<Work> work_of_elements() const {
    std::vector<Work> work(program_.tensors.size());
    for (const Scope& scope : program_.scopes) {
      double term = 1, below = 0;
      for (const std::uint32_t tensor : read_by(scope)) {
        term += work[tensor].element;
        below += work[tensor].whole;
      }
      const double points = elements_of(scope);
      Work& made = work[static_cast<std::size_t>(scope.output)];
      made.whole = below + points * terms_of(scope);
      made.element = scope.target.empty() ? std::min(terms_of(scope) * term, made.whole) : made.whole;
    }
    return work;
  }

  /// Elements that are read about once by others, and take no longer to compute than to look up, are not
  /// kept: chains of functions of one element.
  void choose_kept() {
    std::vector<double> times(data_.size());
    for (const Scope& scope : program_.scopes) {
      for (const std::uint32_t tensor : read_by(scope))
        // Sums read again what they have in common.
        times[tensor] += scope.sums.empty() && scope.target.empty() ? elements_of(scope) : 1e300;
    }
    for (const Scope& scope : program_.scopes) {
      const auto tensor = static_cast<std::size_t>(scope.output);
      const bool simple = scope.sums.empty() && scope.target.empty();
      data_[tensor].kept = !simple || data_[tensor].is_output || times[tensor] > elements_of(scope);
    }
  }

  /// Decides which reductions are estimated so that an element takes `most` terms.
  void limit(std::uint32_t tensor, double most) {
    if (scopes_[tensor] == nullptr || work_[tensor].element <= most || data_[tensor].most <= most) return;
    data_[tensor].most = most;
    constexpr double kLeastTerms = 4096;
    const Scope& scope = *scopes_[tensor];
    TensorState& state = data_[tensor];
    double term = 1;
    for (const std::uint32_t read : read_by(scope)) term += work_[read].element;
    double terms = terms_of(scope);
    const double drawn = std::clamp(most / (kDrawing * term), kLeastTerms, std::max(terms, kLeastTerms));
    // Where all of them take no longer than those drawn would, the sum is better known from all.
    if (kDrawing * drawn < terms && scope.target.empty()) {
      terms = drawn;
      if (state.estimated_from != 0) terms = std::min(terms, static_cast<double>(state.estimated_from));
      state.estimated_from = static_cast<std::int64_t>(terms);
    }
    for (const std::uint32_t read : read_by(scope)) limit(read, most / terms);
  }

  const Program& program_;
  Numbers<Tracked> numbers_;
  Random random_{17};
  std::vector<Work> work_;
  std::vector<TensorState> data_;
  std::vector<const Scope*> scopes_;  // by tensor: what writes it
  int depth_ = 0;                     // of elements being computed
  double spent_ = 0;                  // terms added up
};

const Tracked* PointMachine::Memo::find(std::int64_t offset) const {
  if (!dense) {
    const auto found = sparse.find(offset);
    return found == sparse.end() ? nullptr : &found->second;
  }
  return known[static_cast<std::size_t>(offset)] != 0 ? &dense[static_cast<std::size_t>(offset)] : nullptr;
}

void PointMachine::Memo::set(std::int64_t offset, const Tracked& value, const TensorState& state) {
  constexpr std::int64_t kPart = 64;
  const auto put = [&](std::int64_t at, const Tracked& what) {
    dense[static_cast<std::size_t>(at)] = what;
    known[static_cast<std::size_t>(at)] = 1;
  };
  if (dense) return put(offset, value);
  sparse.emplace(offset, value);
  const std::int64_t elements = checked_product(kInterpret, state.shape);
  if (elements > kDenseElements || static_cast<std::int64_t>(sparse.size()) * kPart < elements) return;
  dense = zeros<Tracked>(static_cast<std::size_t>(elements));
  known = zeros<std::uint8_t>(static_cast<std::size_t>(elements));
  for (const auto& [at, what] : sparse) put(at, what);
  sparse.clear();
}

}  // namespace
}  // namespace detail

PointValues interpret_points(const Program& program, const std::map<std::string, Values<double>>& inputs,
                             const std::string& output,
                             const std::vector<std::vector<std::int64_t>>& points) {
  return allowed_at_points(program, inputs, output, points, {}).reference;
}

struct PointReference::State {
  const Program& program;
  detail::PointMachine machine;
};

PointReference::PointReference(const Program& program, const std::map<std::string, Values<double>>& inputs,
                               const PointOptions& options) {
  detail::check_inputs(program, inputs);
  state_ = std::unique_ptr<State>(new State{program, {program, inputs, options}});
}
PointReference::~PointReference() = default;

AllowedValues PointReference::at(const std::string& output,
                                 const std::vector<std::vector<std::int64_t>>& points) {
  using namespace detail;
  const Program& program = state_->program;
  PointMachine& machine = state_->machine;
  const auto named = [&](TensorId id) { return program.tensor(id).name == output; };
  const auto found = std::find_if(program.outputs.begin(), program.outputs.end(), named);
  if (found == program.outputs.end()) {
    std::vector<std::string> names;
    for (const TensorId id : program.outputs) names.push_back(program.tensor(id).name);
    throw UnknownName(kInterpret, unknown_name("output", output, names));
  }
  const auto tensor = static_cast<std::uint32_t>(*found);
  std::vector<std::int64_t> offsets;
  for (const std::vector<std::int64_t>& point : points) offsets.push_back(machine.offset_of(*found, point));
  const std::vector<Tracked>* sums = nullptr;
  if (machine.accumulates(tensor)) sums = &machine.accumulated(tensor, {offsets.begin(), offsets.end()});
  AllowedValues result;
  for (const std::int64_t offset : offsets) {
    const Tracked value =
        sums != nullptr ? (*sums)[static_cast<std::size_t>(offset)] : machine.element(tensor, offset);
    result.reference.values.push_back(value.value);
    result.reference.absolute_terms.push_back(value.absolute);
    result.allowed.push_back({value.low, value.high, value.nan, value.guessed});
  }
  return result;
}

double PointReference::spent_terms() const { return state_->machine.spent_terms(); }

AllowedValues allowed_at_points(const Program& program, const std::map<std::string, Values<double>>& inputs,
                                const std::string& output,
                                const std::vector<std::vector<std::int64_t>>& points,
                                const PointOptions& options) {
  return PointReference(program, inputs, options).at(output, points);
}

}  // namespace syno::program
