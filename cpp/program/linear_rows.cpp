#include "program/linear_rows.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>

#include "program/evaluator.hpp"
#include "program/scope_walk.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/zeros.hpp"

namespace syno::program {
namespace {

using detail::Evaluator;
using detail::Instruction;
using detail::ScopeCode;
using detail::ScopeWalk;

constexpr std::string_view kRows = "linear_rows";

/// Tensors by id: which lie between the input and the output, both included. What else depends on the input
/// is asked for nothing, linear or not.
std::vector<bool> between(const Program& program, TensorId input, TensorId output) {
  std::vector<bool> depends(program.tensors.size()), wanted(program.tensors.size());
  const auto each_read = [&](const Scope& scope, auto&& look) {
    for (const ScalarId id : scalars_of(program, scope.body))
      if (program.scalar(id).kind == ScalarKind::Read)
        look(static_cast<std::size_t>(program.scalar(id).tensor), static_cast<std::size_t>(scope.output));
  };
  depends[static_cast<std::size_t>(input)] = wanted[static_cast<std::size_t>(output)] = true;
  for (const Scope& scope : program.scopes)
    each_read(scope, [&](std::size_t read, std::size_t made) {
      if (depends[read]) depends[made] = true;
    });
  for (auto scope = program.scopes.rbegin(); scope != program.scopes.rend(); ++scope)
    each_read(*scope, [&](std::size_t read, std::size_t made) {
      if (wanted[made]) wanted[read] = true;
    });
  for (std::size_t t = 0; t < depends.size(); ++t) depends[t] = depends[t] && wanted[t];
  return depends;
}

/// Calls `look` at each point of a scope's traversal.
template <class Look>
void each_point(const ScopeCode& code, Look&& look) {
  std::vector<std::int64_t> first = code.begin;
  first.resize(code.traversal_count);
  std::vector<std::int64_t> point = first;
  do {
    look(point.data());
  } while (detail::advance(point, first, code.extent));
}

/// The point of the traversal at which a scope that does not accumulate writes an element.
const std::int64_t* point_of(const ScopeCode& code, std::int64_t offset, std::vector<std::int64_t>& point) {
  point.resize(code.traversal_count);
  for (std::size_t d = point.size(); d-- > 0;) {
    point[d] = code.begin[d] + offset % code.extent[d];
    offset /= code.extent[d];
  }
  return point.data();
}

/// Elements of what does not depend on the input, computed when they are asked for, and remembered.
class Given {
 public:
  Given(const Program& program, const std::map<std::string, Values<double>>& inputs)
      : program_(program), tensors_(program.tensors.size()) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const Tensor& tensor = program.tensors[t];
      for (const Rational& value : tensor.literal) tensors_[t].literal.push_back(value.to_double());
      if (tensor.role == Role::Constant) tensors_[t].values = tensors_[t].literal.data();
      if (const auto found = inputs.find(tensor.name); found != inputs.end())
        tensors_[t].values = found->second.data.data();
    }
    for (const Scope& scope : program.scopes) tensors_[static_cast<std::size_t>(scope.output)].scope = &scope;
  }

  double operator()(std::uint32_t tensor, std::int64_t offset) {
    State& state = tensors_[tensor];
    const auto at = static_cast<std::size_t>(offset);
    if (state.values != nullptr) return state.values[at];
    if (!state.evaluator) begin(state, tensor);
    if (state.evaluator->code().accumulates) return state.made[at];
    if (state.known[at] == 0) {
      std::vector<std::int64_t> point;  // its own: what it is made of may be asked for on the way
      state.evaluator->move_to(point_of(state.evaluator->code(), offset, point));
      state.made[at] = state.evaluator->value(*this);
      state.known[at] = 1;
    }
    return state.made[at];
  }

 private:
  struct State {
    const double* values = nullptr;  ///< of an input or a constant
    std::vector<double> literal;
    const Scope* scope = nullptr;
    std::unique_ptr<Evaluator<double>> evaluator;
    Zeros<double> made;
    Zeros<std::uint8_t> known;
  };

  void begin(State& state, std::uint32_t tensor) {
    const std::vector<std::int64_t> shape = shape_of(program_, TensorId{tensor});
    const auto count = static_cast<std::size_t>(checked_product(kRows, shape));
    state.made = zeros<double>(count);
    state.known = zeros<std::uint8_t>(count);
    state.evaluator = std::make_unique<Evaluator<double>>(program_, *state.scope);
    const ScopeCode& code = state.evaluator->code();
    if (!code.accumulates) return;
    each_point(code, [&](const std::int64_t* point) {
      state.evaluator->move_to(point);
      if (std::int64_t offset = 0; state.evaluator->target(offset))
        state.made[static_cast<std::size_t>(offset)] += state.evaluator->value(*this);
    });
  }

  const Program& program_;
  std::vector<State> tensors_;
};

/// How much of each element of a tensor a row has: zeros, but for those that were touched. Of large tensors
/// only these are kept, since a page of memory for each would be more.
class Shares {
 public:
  explicit Shares(std::size_t count) {
    if (count > kLarge) return;
    values_.resize(count);
    touched_.resize(count);
  }

  void add(std::int64_t offset, double value) {
    const auto at = static_cast<std::size_t>(offset);
    if (values_.empty()) {
      const auto [place, first] = few_.try_emplace(offset, 0.0);
      if (first) offsets_.push_back(offset);
      place->second += value;
      return;
    }
    if (touched_[at] == 0) {
      touched_[at] = 1;
      offsets_.push_back(offset);
    }
    values_[at] += value;
  }
  double at(std::int64_t offset) const {
    if (!values_.empty()) return values_[static_cast<std::size_t>(offset)];
    const auto found = few_.find(offset);
    return found == few_.end() ? 0 : found->second;
  }
  bool empty() const { return offsets_.empty(); }

  /// What there is, in the order of offsets; all is zero again.
  LinearRow take() {
    std::sort(offsets_.begin(), offsets_.end());
    LinearRow row;
    for (const std::int64_t offset : offsets_) {
      const double value = at(offset);
      if (value != 0) {
        row.offsets.push_back(offset);
        row.values.push_back(value);
      }
      if (values_.empty()) continue;
      values_[static_cast<std::size_t>(offset)] = 0;
      touched_[static_cast<std::size_t>(offset)] = 0;
    }
    few_.clear();
    offsets_.clear();
    return row;
  }

 private:
  static constexpr std::size_t kLarge = std::size_t{1} << 20;

  std::vector<double> values_;
  std::vector<std::uint8_t> touched_;
  std::unordered_map<std::int64_t, double> few_;  ///< looked up only: `offsets_` has their order
  std::vector<std::int64_t> offsets_;
};

/// One scope, from an element of what it writes to the elements that it reads.
class Backwards {
 public:
  Backwards(const Program& program, const Scope& scope, const std::vector<bool>& depends)
      : walk_(ScopeCode(program, scope)),
        name_(program.tensor(scope.output).name),
        linear_(code().body.size()),
        needed_(code().body.size()),
        registers_(code().body.size()),
        shares_(code().body.size()) {
    for (const Instruction& instruction : code().body) literals_.push_back(instruction.value.to_double());
    if (scope.reduction != Reduction::None && scope.reduction != Reduction::Sum &&
        scope.reduction != Reduction::Mean)
      refuse("a reduction that is no sum");
    for (std::size_t i = 0; i < linear_.size(); ++i) linear_[i] = depends_on(code().body[i], depends);
    for (std::size_t i = linear_.size(); i-- > 0;) look_at(i);
    for (std::size_t i = linear_.size(); i-- > 0;)
      if (needed_[i]) need_operands(code().body[i]);
  }

  const ScopeCode& code() const { return walk_.code(); }
  ScopeWalk& walk() { return walk_; }

  /// Adds `share` of the scope's value at the current point of its traversal to what its reads have.
  template <class Add>
  void spread(double share, Given& given, Add&& add) {
    if (code().reduction == Reduction::Mean) share /= static_cast<double>(code().sum_points);
    do {
      interruption_point();
      for (std::size_t i = 0; i < registers_.size(); ++i)
        if (needed_[i]) registers_[i] = value(i, given);
      spread_term(share, add);
    } while (walk_.next_term());
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail<VerifyError>(kRows, "{} in the scope of '{}' is not linear in the input", what, name_);
  }

  bool depends_on(const Instruction& instruction, const std::vector<bool>& depends) const {
    switch (instruction.kind) {
      case ScalarKind::Literal:
      case ScalarKind::Index:
        return false;
      case ScalarKind::Read:
        return depends[code().accesses[instruction.a].tensor];
      case ScalarKind::Unary:
        return linear_[instruction.a];
      case ScalarKind::Binary:
        return linear_[instruction.a] || linear_[instruction.b];
      case ScalarKind::Select:
        return linear_[instruction.a] || linear_[instruction.b] || linear_[instruction.c];
    }
    return false;
  }

  /// Refuses what is not linear, and notes the values by which shares are multiplied.
  void look_at(std::size_t i) {
    if (!linear_[i]) return;
    const Instruction& instruction = code().body[i];
    if (instruction.kind == ScalarKind::Select) {
      if (linear_[instruction.a]) refuse("a condition");
      needed_[instruction.a] = true;
    }
    if (instruction.kind == ScalarKind::Unary && instruction.function != Function::Negate)
      refuse(fmt::format("'{}'", name_of(instruction.function)));
    if (instruction.kind != ScalarKind::Binary) return;
    const bool both = linear_[instruction.a] && linear_[instruction.b];
    switch (instruction.function) {
      case Function::Add:
      case Function::Subtract:
        return;
      case Function::Multiply:
        if (both) break;
        needed_[linear_[instruction.a] ? instruction.b : instruction.a] = true;
        return;
      case Function::Divide:
        if (linear_[instruction.b]) break;
        needed_[instruction.b] = true;
        return;
      default:
        break;
    }
    refuse(fmt::format("'{}'", name_of(instruction.function)));
  }
  /// Operands precede their users, so that going backwards finds all that is needed.
  void need_operands(const Instruction& instruction) {
    if (instruction.kind == ScalarKind::Select) needed_[instruction.c] = true;
    if (instruction.kind == ScalarKind::Select || instruction.kind == ScalarKind::Binary)
      needed_[instruction.b] = true;
    if (instruction.kind != ScalarKind::Literal && instruction.kind != ScalarKind::Index &&
        instruction.kind != ScalarKind::Read)
      needed_[instruction.a] = true;
  }

  double value(std::size_t i, Given& given) const {
    const Instruction& instruction = code().body[i];
    switch (instruction.kind) {
      case ScalarKind::Literal:
        return literals_[i];
      case ScalarKind::Index:
        return static_cast<double>(walk_.index(instruction));
      case ScalarKind::Read: {
        std::int64_t offset = 0;
        const detail::Access& access = code().accesses[instruction.a];
        return walk_.locate(access, offset) ? given(access.tensor, offset) : literals_[i];
      }
      case ScalarKind::Unary:
        return apply(instruction.function, registers_[instruction.a]);
      case ScalarKind::Binary:
        return apply(instruction.function, registers_[instruction.a], registers_[instruction.b]);
      case ScalarKind::Select:
        return registers_[registers_[instruction.a] != 0 ? instruction.b : instruction.c];
    }
    return 0;
  }

  template <class Add>
  void spread_term(double share, Add& add) {
    std::fill(shares_.begin(), shares_.end(), 0.0);
    shares_.back() = share;
    for (std::size_t i = shares_.size(); i-- > 0;) {
      const double mine = shares_[i];
      if (!linear_[i] || mine == 0) continue;
      const Instruction& instruction = code().body[i];
      const std::uint32_t a = instruction.a, b = instruction.b;
      switch (instruction.kind) {
        case ScalarKind::Literal:
        case ScalarKind::Index:
          break;
        case ScalarKind::Read: {
          const detail::Access& access = code().accesses[a];
          if (std::int64_t offset = 0; walk_.locate(access, offset)) add(access.tensor, offset, mine);
          break;
        }
        case ScalarKind::Unary:
          shares_[a] -= mine;
          break;
        case ScalarKind::Select:
          shares_[registers_[a] != 0 ? b : instruction.c] += mine;
          break;
        case ScalarKind::Binary:
          if (instruction.function == Function::Multiply) {
            shares_[linear_[a] ? a : b] += mine * registers_[linear_[a] ? b : a];
          } else if (instruction.function == Function::Divide) {
            shares_[a] += mine / registers_[b];
          } else {
            shares_[a] += mine;
            shares_[b] += instruction.function == Function::Subtract ? -mine : mine;
          }
          break;
      }
    }
  }

  ScopeWalk walk_;
  const std::string& name_;
  std::vector<std::uint8_t> linear_, needed_;  ///< by register: depends on the input; others multiply by it
  std::vector<double> registers_, shares_, literals_;
};

class Rows {
 public:
  Rows(const Program& program, const std::map<std::string, Values<double>>& values, TensorId input,
       TensorId output)
      : given_(program, values), shares_(program.tensors.size()) {
    const std::vector<bool> depends = between(program, input, output);
    for (std::size_t t = 0; t < depends.size(); ++t)
      if (depends[t])
        shares_[t].emplace(static_cast<std::size_t>(
            checked_product(kRows, shape_of(program, TensorId{static_cast<std::uint32_t>(t)}))));
    for (const Scope& scope : program.scopes) {
      if (!depends[static_cast<std::size_t>(scope.output)]) continue;
      scopes_.emplace_back(program, scope, depends);
      outputs_.push_back(static_cast<std::uint32_t>(scope.output));
    }
    input_ = static_cast<std::size_t>(input);
  }

  LinearRow at(TensorId output, std::int64_t offset) {
    if (!shares_[static_cast<std::size_t>(output)]) return {};
    shares_[static_cast<std::size_t>(output)]->add(offset, 1);
    for (std::size_t s = scopes_.size(); s-- > 0;) spread(scopes_[s], outputs_[s]);
    return shares_[input_]->take();
  }

 private:
  void spread(Backwards& scope, std::uint32_t output) {
    Shares& mine = *shares_[output];
    if (mine.empty()) return;
    const auto add = [&](std::uint32_t tensor, std::int64_t offset, double share) {
      shares_[tensor]->add(offset, share);
    };
    const ScopeCode& code = scope.code();
    if (!code.accumulates) {
      const LinearRow row = mine.take();
      for (std::size_t i = 0; i < row.offsets.size(); ++i) {
        scope.walk().move_to(point_of(code, row.offsets[i], point_));
        scope.spread(row.values[i], given_, add);
      }
      return;
    }
    each_point(code, [&](const std::int64_t* point) {
      scope.walk().move_to(point);
      if (std::int64_t offset = 0; scope.walk().locate(code.target, offset) && mine.at(offset) != 0)
        scope.spread(mine.at(offset), given_, add);
    });
    mine.take();
  }

  Given given_;
  std::vector<std::int64_t> point_;
  std::vector<std::optional<Shares>> shares_;  ///< by tensor, of those between input and output
  std::vector<Backwards> scopes_;              ///< the scopes of such tensors, in the program's order
  std::vector<std::uint32_t> outputs_;         ///< of these scopes
  std::size_t input_ = 0;
};

TensorId named(const Program& program, const std::vector<TensorId>& among, std::string_view kind,
               const std::string& name) {
  std::vector<std::string> names;
  for (const TensorId id : among) {
    if (program.tensor(id).name == name) return id;
    names.push_back(program.tensor(id).name);
  }
  throw UnknownName(kRows, unknown_name(kind, name, names));
}

void check_values(const Program& program, const std::map<std::string, Values<double>>& values,
                  TensorId input) {
  for (const auto& [name, given] : values) named(program, program.inputs(), "input", name);
  for (const TensorId id : program.inputs()) {
    if (id == input) continue;
    const std::string& name = program.tensor(id).name;
    const std::vector<std::int64_t> shape = shape_of(program, id);
    const auto found = values.find(name);
    if (found == values.end())
      fail<ShapeError>(kRows, "no values for '{}' of shape [{}]", name, fmt::join(shape, ", "));
    if (found->second.shape != shape ||
        static_cast<std::int64_t>(found->second.data.size()) != checked_product(kRows, shape))
      fail<ShapeError>(kRows, "'{}' has shape [{}], but the program wants [{}]", name,
                       fmt::join(found->second.shape, ", "), fmt::join(shape, ", "));
  }
}

}  // namespace

std::vector<LinearRow> linear_rows(const Program& concrete,
                                   const std::map<std::string, Values<double>>& values,
                                   const std::string& output, const std::string& input,
                                   const std::vector<std::vector<std::int64_t>>& points) {
  if (!concrete.concrete())
    fail<ShapeError>(kRows, "the program has symbolic sizes: choose one of its {} valuations with at()",
                     concrete.sizes.valuation_count());
  verify(concrete);
  const TensorId by = named(concrete, concrete.inputs(), "input", input);
  const TensorId of = named(concrete, concrete.outputs, "output", output);
  check_values(concrete, values, by);
  const std::vector<Range>& dims = concrete.tensor(of).dims;
  std::vector<std::int64_t> offsets;
  for (const std::vector<std::int64_t>& point : points) {
    std::int64_t offset = 0;
    bool inside = point.size() == dims.size();
    for (std::size_t d = 0; inside && d < point.size(); ++d) {
      const Extent extent = extent_of(concrete, dims[d], 0);
      inside = point[d] >= extent.begin && point[d] < extent.end;
      offset = offset * (extent.end - extent.begin) + point[d] - extent.begin;
    }
    if (!inside)
      fail<ShapeError>(kRows, "point [{}] is not one of '{}', whose shape is [{}]", fmt::join(point, ", "),
                       output, fmt::join(shape_of(concrete, of), ", "));
    offsets.push_back(offset);
  }
  Rows rows(concrete, values, by, of);
  std::vector<LinearRow> result;
  for (const std::int64_t offset : offsets) result.push_back(rows.at(of, offset));
  return result;
}

}  // namespace syno::program
