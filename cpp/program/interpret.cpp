#include "program/interpret.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include "program/evaluator.hpp"
#include "program/scalars.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/memory.hpp"
#include "support/random.hpp"
#include "support/zeros.hpp"

namespace syno::program {

double apply(Function function, double a, double b) {
  switch (function) {
    case Function::Negate:
      return -a;
    case Function::Exp:
      return std::exp(a);
    case Function::Log:
      return std::log(a);
    case Function::Sqrt:
      return std::sqrt(a);
    case Function::Rsqrt:
      return 1 / std::sqrt(a);
    case Function::Erf:
      return std::erf(a);
    case Function::Tanh:
      return std::tanh(a);
    case Function::Sigmoid:
      return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a));
    case Function::Relu:
      return a < 0 ? 0 : a;
    case Function::Abs:
      return std::abs(a);
    case Function::Gelu: {  // 1 + erf would cancel in the left tail, and an argument's error be magnified
      const long double wide = a;
      return static_cast<double>(wide * (0.5L * std::erfc(-wide / std::numbers::sqrt2_v<long double>)));
    }
    case Function::Add:
      return a + b;
    case Function::Subtract:
      return a - b;
    case Function::Multiply:
      return a * b;
    case Function::Divide:
      return a / b;
    case Function::Maximum:
      return a > b || std::isnan(a) ? a : b;  // a NaN on either side stays visible
    case Function::Minimum:
      return a < b || std::isnan(a) ? a : b;
    case Function::Power:
      return std::pow(a, b);
    case Function::Less:
      return a < b;
    case Function::LessEqual:
      return a <= b;
    case Function::Equal:
      return a == b;
    case Function::NotEqual:
      return a != b;
    case Function::And:
      return a != 0 && b != 0;
    case Function::Or:
      return a != 0 || b != 0;
    case Function::Floor:
      return std::floor(a);
    case Function::Ceil:
      return std::ceil(a);
    case Function::Round:
      return std::nearbyint(a);
    case Function::Trunc:
      return std::trunc(a);
    case Function::Sin:
      return std::sin(a);
    case Function::Cos:
      return std::cos(a);
    case Function::Atan:
      return std::atan(a);
    case Function::Fmod:
      return std::fmod(a, b);
  }
  return 0;
}

namespace detail {

namespace {

constexpr const char* kDivisionByZero = "a division by zero";
constexpr const char* kEndless = "a remainder of infinity";
constexpr const char* kPower = "a power whose exponent is not an integer";

Rational floor(Rational x) {
  const std::int64_t quotient = x.num() / x.den();
  return x.num() % x.den() < 0 ? quotient - 1 : quotient;
}

/// What `rounds(function)` makes of a number; halves go to the even one of their neighbours.
Rational rounded(Function function, Rational x) {
  const Rational below = floor(x);
  if (x == below || function == Function::Floor) return below;
  const Rational above = below + Rational(1);
  if (function == Function::Ceil) return above;
  if (function == Function::Trunc) return x < Rational(0) ? above : below;
  const Rational rest = x - below, half{1, 2};
  if (rest == half) return below.num() % 2 == 0 ? below : above;
  return rest < half ? below : above;
}

Exact power(Rational base, Rational exponent) {
  if (!exponent.integral()) return {Rational(), kPower};
  if (exponent < Rational(0) && base == Rational(0)) return {Rational(), kDivisionByZero};
  if (exponent < Rational(0)) return power(Rational(1) / base, Rational(0) - exponent);
  Rational result = 1;
  for (std::int64_t left = exponent.num(); left > 0; left /= 2) {  // squares only what is still needed
    if (left % 2 == 1) result = result * base;
    if (left > 1) base = base * base;
  }
  return {result};
}

}  // namespace

Exact Numbers<Exact>::function(Function f, const Exact& a, const Exact& b) {
  if (a.undefined) return a;
  if (b.undefined) return b;
  const Rational x = a.value, y = b.value, zero = 0;
  switch (f) {
    case Function::Negate:
      return {zero - x};
    case Function::Relu:
      return {std::max(x, zero)};
    case Function::Abs:
      return {x < zero ? zero - x : x};
    case Function::Add:
      return {x + y};
    case Function::Subtract:
      return {x - y};
    case Function::Multiply:
      return {x * y};
    case Function::Divide:
      return y == zero ? Exact{Rational(), kDivisionByZero} : Exact{x / y};
    case Function::Maximum:
      return {std::max(x, y)};
    case Function::Minimum:
      return {std::min(x, y)};
    case Function::Power:
      return power(x, y);
    case Function::Less:
      return {Rational(x < y)};
    case Function::LessEqual:
      return {Rational(x <= y)};
    case Function::Equal:
      return {Rational(x == y)};
    case Function::NotEqual:
      return {Rational(!(x == y))};
    case Function::And:
      return {Rational(x != zero && y != zero)};
    case Function::Or:
      return {Rational(x != zero || y != zero)};
    case Function::Floor:
    case Function::Ceil:
    case Function::Round:
    case Function::Trunc:
      if (!x.finite()) return a;
      return {rounded(f, x)};
    case Function::Fmod:
      if (y == zero || !x.finite()) return {Rational(), y == zero ? kDivisionByZero : kEndless};
      if (!y.finite()) return a;
      return {x - rounded(Function::Trunc, x / y) * y};
    default:
      return {Rational(), "a function that is not rational"};
  }
}

namespace {

constexpr std::string_view kInterpret = "interpret";

bool rational(Function function) {
  return function == Function::Negate || function == Function::Relu || function == Function::Abs ||
         rounds(function) || !is_unary(function);
}

void require_rational(const Program& program) {
  for (const Scope& scope : program.scopes)
    for (const ScalarId id : scalars_of(program, scope.body)) {
      const Scalar& scalar = program.scalar(id);
      if (scalar.kind == ScalarKind::Unary && !rational(scalar.function))
        fail<VerifyError>(kInterpret,
                          "'{}' in the scope of '{}' is not a rational function: interpret it in float64",
                          name_of(scalar.function), program.tensor(scope.output).name);
    }
}

template <class T>
void check_inputs(const Program& program, const std::map<std::string, Values<T>>& inputs) {
  if (!program.concrete())
    fail<ShapeError>(kInterpret, "the program has symbolic sizes: choose one of its {} valuations with at()",
                     program.sizes.valuation_count());
  verify(program);
  std::vector<std::string> names;
  for (const TensorId id : program.inputs()) {
    const Tensor& tensor = program.tensor(id);
    names.push_back(tensor.name);
    const auto found = inputs.find(tensor.name);
    const std::vector<std::int64_t> shape = shape_of(program, id);
    if (found == inputs.end())
      fail<ShapeError>(kInterpret, "no values for '{}' of shape [{}]", tensor.name, fmt::join(shape, ", "));
    if (found->second.shape != shape)
      fail<ShapeError>(kInterpret, "'{}' has shape [{}], but the program wants [{}]", tensor.name,
                       fmt::join(found->second.shape, ", "), fmt::join(shape, ", "));
    if (static_cast<std::int64_t>(found->second.data.size()) != checked_product(kInterpret, shape))
      fail<ShapeError>(kInterpret, "'{}' has {} values, but its shape [{}] needs {}", tensor.name,
                       found->second.data.size(), fmt::join(shape, ", "), checked_product(kInterpret, shape));
  }
  for (const auto& [name, values] : inputs)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw UnknownName(kInterpret, unknown_name("input", name, names));
}

// Registers hold Exact where tensors hold Rational.
template <class T>
using RegisterOf = std::conditional_t<std::is_same_v<T, Rational>, Exact, T>;

double store(double value, const Program&, const Scope&) { return value; }
Rational store(const Exact& value, const Program& program, const Scope& scope) {
  if (value.undefined)
    fail<VerifyError>(kInterpret, "{} in the scope of '{}' has no exact value", value.undefined,
                      program.tensor(scope.output).name);
  return value.value;
}

// How many elements a tensor has; ShapeError where the memory for so many, of `bytes` each, is not there.
std::size_t element_count(const Program& program, TensorId tensor, std::size_t bytes) {
  const std::vector<std::int64_t> shape = shape_of(program, tensor);
  const std::int64_t count = checked_product(kInterpret, shape);
  require_memory(kInterpret,
                 fmt::format("'{}' of shape [{}]", program.tensor(tensor).name, fmt::join(shape, ", ")),
                 count, static_cast<std::int64_t>(bytes));
  return static_cast<std::size_t>(count);
}

template <class T>
void run_scope(const Program& program, const Scope& scope, std::vector<std::vector<T>>& owned,
               std::vector<const T*>& data) {
  Evaluator<RegisterOf<T>> evaluator(program, scope);
  const ScopeCode& code = evaluator.code();
  const auto output = static_cast<std::size_t>(scope.output);
  owned[output].assign(element_count(program, scope.output, sizeof(T)), T(0));
  T* result = owned[output].data();
  data[output] = result;

  const auto load = [&](std::uint32_t tensor, std::int64_t offset) {
    return RegisterOf<T>{data[tensor][static_cast<std::size_t>(offset)]};
  };
  const std::vector<std::int64_t> begin(
      code.begin.begin(), code.begin.begin() + static_cast<std::ptrdiff_t>(code.traversal_count));
  std::vector<std::int64_t> point = begin;
  std::int64_t next = 0;
  do {
    interruption_point();
    evaluator.move_to(point.data());
    if (!code.accumulates) {
      result[next++] = store(evaluator.value(load), program, scope);
    } else if (std::int64_t offset = 0; evaluator.target(offset)) {
      result[offset] = result[offset] + store(evaluator.value(load), program, scope);
    }
  } while (advance(point, begin, code.extent));
}

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
      if (const Tracked* known = state.memo.find(offset)) return *known;
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

  // Dense where a part of a tensor of a usual size is known: an element is looked up far more often than it
  // is computed. Of a few elements a table would take longer to make than to use.
  struct Memo {
    Zeros<Tracked> dense;
    Zeros<std::uint8_t> known;
    std::unordered_map<std::int64_t, Tracked> sparse;  // its order reaches nothing

    const Tracked* find(std::int64_t offset) const;
    void set(std::int64_t offset, const Tracked& value, const TensorState& state);
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
  };
  Loader loader() { return {this}; }

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
    if (state.estimated_from == 0) return finished(state, evaluator.value(loader()));
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
  double terms_of(const Scope& scope) const {
    double terms = 1;
    for (const Iterator& i : scope.sums) {
      const Extent extent = extent_of(program_, i.range, 0);
      terms *= static_cast<double>(extent.end - extent.begin);
    }
    return terms;
  }

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

  double elements_of(const Scope& scope) const {
    double points = 1;
    for (const Iterator& i : scope.traversal) {
      const Extent extent = extent_of(program_, i.range, 0);
      points *= static_cast<double>(extent.end - extent.begin);
    }
    return points;
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
  constexpr std::int64_t kDenseElements = 1 << 22, kPart = 64;
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

template <class T>
std::map<std::string, Values<T>> interpret(const Program& program,
                                           const std::map<std::string, Values<T>>& inputs) {
  using namespace detail;
  check_inputs(program, inputs);
  if constexpr (std::is_same_v<T, Rational>) require_rational(program);
  std::vector<std::vector<T>> owned(program.tensors.size());
  std::vector<const T*> data(program.tensors.size());
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.role == Role::Computed) continue;
    if (tensor.role == Role::Constant) {
      for (const Rational& value : tensor.literal) {
        if constexpr (std::is_same_v<T, Rational>)
          owned[t].push_back(value);
        else
          owned[t].push_back(value.to_double());
      }
      data[t] = owned[t].data();
    } else {
      data[t] = inputs.at(tensor.name).data.data();
    }
  }
  for (const Scope& scope : program.scopes) run_scope(program, scope, owned, data);
  std::map<std::string, Values<T>> outputs;
  for (const TensorId id : program.outputs)
    outputs[program.tensor(id).name] = {shape_of(program, id),
                                        std::move(owned[static_cast<std::size_t>(id)])};
  return outputs;
}

template std::map<std::string, Values<double>> interpret(const Program&,
                                                         const std::map<std::string, Values<double>>&);
template std::map<std::string, Values<Rational>> interpret(const Program&,
                                                           const std::map<std::string, Values<Rational>>&);

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
