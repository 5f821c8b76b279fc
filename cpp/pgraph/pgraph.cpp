#include "pgraph/pgraph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "support/error.hpp"

namespace syno::pgraph {
namespace {

constexpr std::array<std::string_view, kPrimitiveCount> kNames = {
    "reduce", "merge", "split", "shift", "stride", "unfold", "expand", "contraction"};

std::uint32_t number(CoordinateId id) { return static_cast<std::uint32_t>(id); }

/// The extents a step yields; the reason instead where it cannot be taken.
struct Outcome {
  std::vector<Size> results;
  std::string reason;
};

class Legality {
 public:
  Legality(const PGraph& graph, const Step& step)
      : graph_(graph), step_(step), sizes_(graph.signature().sizes) {}

  Outcome check() {
    if (!operands_ok()) return std::move(outcome_);
    switch (step_.primitive) {
      case Primitive::Reduce:
        reduce();
        break;
      case Primitive::Merge:
        merge();
        break;
      case Primitive::Split:
        results({extent(0) * extent(1)});
        break;
      case Primitive::Shift:
        shift();
        break;
      case Primitive::Stride:
        stride();
        break;
      case Primitive::Unfold:
        unfold();
        break;
      case Primitive::Expand:
        break;
      case Primitive::Contraction:
        contraction();
        break;
    }
    return std::move(outcome_);
  }

 private:
  template <class... Args>
  void illegal(fmt::format_string<Args...> format, Args&&... args) {
    outcome_.reason = fmt::format(format, std::forward<Args>(args)...);
  }
  void results(std::vector<Size> extents) { outcome_.results = std::move(extents); }
  const Size& extent(std::size_t operand) const { return graph_.coordinate(step_.operands[operand]).extent; }
  std::string text(const Size& size) const { return sizes_.to_text(size); }

  bool operands_ok() {
    static constexpr std::array<std::size_t, kPrimitiveCount> kArity = {0, 1, 2, 1, 1, 2, 1, 0};
    const auto primitive = static_cast<std::size_t>(step_.primitive);
    if (step_.primitive != Primitive::Contraction && step_.operands.size() != kArity[primitive]) {
      illegal("A {} takes {} coordinate(s), not {}.", kNames[primitive], kArity[primitive],
              step_.operands.size());
      return false;
    }
    if (step_.primitive != Primitive::Contraction && (!step_.matched.empty() || step_.source != 0)) {
      illegal("Only a contraction matches coordinates to a weight; a {} cannot.", kNames[primitive]);
      return false;
    }
    std::vector<CoordinateId> all = step_.operands;
    all.insert(all.end(), step_.matched.begin(), step_.matched.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!std::binary_search(graph_.frontier().begin(), graph_.frontier().end(), all[i])) {
        illegal("Coordinate c{} is not in the frontier: it does not exist, is fixed, or was consumed before.",
                number(all[i]));
        return false;
      }
      if (std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), all[i]) !=
          all.begin() + static_cast<std::ptrdiff_t>(i)) {
        illegal("Coordinate c{} is named twice in one step.", number(all[i]));
        return false;
      }
    }
    return true;
  }

  void reduce() {
    if (!sizes_.integral(step_.size)) {
      return illegal("A reduction over {} is not over an integer number of points at every valuation.",
                     text(step_.size));
    }
    results({step_.size});
  }
  void merge() {
    if (!sizes_.integral(step_.size)) {
      return illegal("The block {} of the merge is not an integer at every valuation.", text(step_.size));
    }
    if (!sizes_.divides(step_.size, extent(0))) {
      return illegal(
          "The block {} of the merge does not divide the coordinate's extent {} at every valuation.",
          text(step_.size), text(extent(0)));
    }
    results({extent(0) / step_.size, step_.size});
  }
  void shift() {
    if (step_.amount == 0) return illegal("A shift by 0 places does nothing.");
    results({extent(0)});
  }
  void stride() {
    if (!sizes_.integral(step_.size)) {
      return illegal("The stride {} is not an integer at every valuation.", text(step_.size));
    }
    results({step_.size * extent(0)});
  }
  void unfold() {
    if (!sizes_.less_equal(extent(1), extent(0))) {
      return illegal("The window {} of the unfold is larger than the dimension {} at some valuation.",
                     text(extent(1)), text(extent(0)));
    }
    results({extent(0)});
  }
  void contraction() {
    if (step_.operands.empty() && step_.matched.empty()) {
      return illegal("A contraction needs at least one coordinate to index its weight with.");
    }
    if (step_.source != 0) further_input();
  }
  void further_input() {
    const std::vector<FurtherInput>& further = graph_.signature().further;
    if (step_.source > further.size()) {
      return illegal("There is no input x{}: the signature has {} further input(s).", step_.source + 1,
                     further.size());
    }
    for (const Step& before : graph_.steps()) {
      if (before.source == step_.source) {
        return illegal("The input x{} was brought in before; each is read once.", step_.source + 1);
      }
    }
    const FurtherInput& input = further[step_.source - 1];
    std::vector<Size> given, wanted;
    for (const auto* ids : {&step_.operands, &step_.matched}) {
      for (const CoordinateId id : *ids) given.push_back(graph_.coordinate(id).extent);
    }
    for (const std::size_t d : open_dims(input.dims, input.fixed)) wanted.push_back(input.dims[d].extent);
    std::sort(given.begin(), given.end());
    std::sort(wanted.begin(), wanted.end());
    if (given == wanted) return;
    const auto texts = [&](const std::vector<Size>& sizes) {
      std::string list;
      for (const Size& size : sizes) list += (list.empty() ? "" : ", ") + text(size);
      return list;
    };
    illegal("The coordinates given to the input x{} have extents [{}], but its open dimensions [{}].",
            step_.source + 1, texts(given), texts(wanted));
  }

  const PGraph& graph_;
  const Step& step_;
  const Sizes& sizes_;
  Outcome outcome_;
};

}  // namespace

std::string_view name_of(Primitive primitive) { return kNames[static_cast<std::size_t>(primitive)]; }

std::optional<Primitive> primitive_named(std::string_view name) {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Primitive>(found - kNames.begin());
}

void check(const Signature& signature) {
  const auto check_dims = [&](const std::vector<Dim>& dims, std::string_view side) {
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (!signature.sizes.integral(dims[i].extent)) {
        fail<SpecError>("signature",
                        "dimension {} ('{}') of the {} has extent {}, not an integer at every valuation", i,
                        dims[i].name, side, signature.sizes.to_text(dims[i].extent));
      }
    }
  };
  check_dims(signature.output, "output");
  const auto check_fixed = [&](const std::vector<Dim>& input, const FixedPairs& fixed) {
    std::vector<bool> output_used(signature.output.size());
    std::vector<bool> input_used(input.size());
    for (const auto& [out, in] : fixed) {
      if (out >= signature.output.size() || in >= input.size()) {
        fail<SpecError>(
            "signature",
            "the fixed pair ({}, {}) names a dimension that does not exist: output has {}, input {}", out, in,
            signature.output.size(), input.size());
      }
      if (output_used[out] || input_used[in]) {
        fail<SpecError>("signature", "a dimension of the fixed pair ({}, {}) is fixed twice", out, in);
      }
      output_used[out] = input_used[in] = true;
      if (signature.output[out].extent != input[in].extent) {
        fail<SpecError>("signature", "the fixed pair ({}, {}) joins extents {} and {}, which differ", out, in,
                        signature.sizes.to_text(signature.output[out].extent),
                        signature.sizes.to_text(input[in].extent));
      }
    }
    return output_used;
  };
  check_dims(signature.input, "input");
  const std::vector<bool> batch = check_fixed(signature.input, signature.fixed);
  for (std::size_t k = 0; k < signature.further.size(); ++k) {
    const FurtherInput& input = signature.further[k];
    const std::string name = fmt::format("input x{}", k + 2);
    check_dims(input.dims, name);
    const std::vector<bool> fixed = check_fixed(input.dims, input.fixed);
    for (std::size_t d = 0; d < fixed.size(); ++d) {
      if (fixed[d] && !batch[d]) {
        fail<SpecError>("signature",
                        "output dimension {} ('{}') is fixed in the {} only; fix it in the first input too, "
                        "or leave it open in both",
                        d, signature.output[d].name, name);
      }
    }
    if (open_dims(input.dims, input.fixed).empty()) {
      fail<SpecError>("signature", "every dimension of the {} is fixed; it needs one that is open", name);
    }
  }
}

std::vector<std::size_t> open_dims(const std::vector<Dim>& dims, const FixedPairs& fixed) {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (std::none_of(fixed.begin(), fixed.end(), [&](const auto& pair) { return pair.second == i; }))
      open.push_back(i);
  }
  return open;
}

PGraph::PGraph(Signature signature) : signature_(std::move(signature)) {
  check(signature_);
  for (std::size_t i = 0; i < signature_.output.size(); ++i) {
    coordinates_.push_back({signature_.output[i].extent, std::nullopt, i});
    const bool fixed = std::any_of(signature_.fixed.begin(), signature_.fixed.end(),
                                   [&](const auto& pair) { return pair.first == i; });
    if (!fixed) frontier_.push_back(static_cast<CoordinateId>(i));
  }
}

std::vector<CoordinateId> PGraph::results_of(std::size_t step) const {
  const std::size_t end = step + 1 < steps_.size() ? first_result_[step + 1] : coordinates_.size();
  std::vector<CoordinateId> ids;
  for (std::size_t i = first_result_[step]; i < end; ++i) ids.push_back(static_cast<CoordinateId>(i));
  return ids;
}

std::variant<PGraph, Illegal> PGraph::apply(const Step& step) const {
  Outcome outcome = Legality(*this, step).check();
  if (!outcome.reason.empty()) return Illegal{std::move(outcome.reason)};
  PGraph next = *this;
  const auto leave = [&](CoordinateId id) {
    next.frontier_.erase(std::lower_bound(next.frontier_.begin(), next.frontier_.end(), id));
  };
  if (step.primitive == Primitive::Contraction) {
    if (step.source == 0) {
      std::vector<CoordinateId> weight = step.matched;
      weight.insert(weight.end(), step.operands.begin(), step.operands.end());
      next.weights_.push_back(std::move(weight));
    }
    for (const CoordinateId id : step.matched) leave(id);
  } else {
    for (const CoordinateId id : step.operands) leave(id);
  }
  next.first_result_.push_back(next.coordinates_.size());
  for (std::size_t i = 0; i < outcome.results.size(); ++i) {
    next.frontier_.push_back(static_cast<CoordinateId>(next.coordinates_.size()));
    next.coordinates_.push_back({outcome.results[i], steps_.size(), i});
  }
  next.steps_.push_back(step);
  return next;
}

PGraph apply_all(PGraph graph, const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    auto next = graph.apply(step);
    if (const auto* illegal = std::get_if<Illegal>(&next)) {
      fail<VerifyError>("pgraph", "step {} ({}) cannot be taken: {}", graph.steps().size() + 1,
                        name_of(step.primitive), illegal->reason);
    }
    graph = std::get<PGraph>(std::move(next));
  }
  return graph;
}

namespace {

/// Every way to give each dimension of `dims` that is not fixed its own coordinate of the same extent.
std::vector<std::vector<CoordinateId>> assignments(const PGraph& graph, const std::vector<Dim>& dims,
                                                   const FixedPairs& fixed,
                                                   const std::vector<CoordinateId>& given) {
  std::vector<CoordinateId> assignment(dims.size());
  for (const auto& [out, in] : fixed) assignment[in] = static_cast<CoordinateId>(out);
  const std::vector<std::size_t> open = open_dims(dims, fixed);
  std::vector<std::vector<CoordinateId>> result;
  if (open.size() != given.size()) return result;
  std::vector<bool> used(given.size());
  const auto place = [&](const auto& self, std::size_t at) -> void {
    if (at == open.size()) {
      result.push_back(assignment);
      return;
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (used[i] || graph.coordinate(given[i]).extent != dims[open[at]].extent) continue;
      used[i] = true;
      assignment[open[at]] = given[i];
      self(self, at + 1);
      used[i] = false;
    }
  };
  place(place, 0);
  return result;
}

/// Whether `assignment` is one of assignments(): there may be too many of those to list.
bool assigns(const PGraph& graph, const std::vector<Dim>& dims, const FixedPairs& fixed,
             const std::vector<CoordinateId>& given, const std::vector<CoordinateId>& assignment) {
  const std::vector<std::size_t> open = open_dims(dims, fixed);
  if (assignment.size() != dims.size() || open.size() != given.size()) return false;
  for (const auto& [out, in] : fixed)
    if (assignment[in] != static_cast<CoordinateId>(out)) return false;
  std::vector<CoordinateId> left = given;
  for (const std::size_t d : open) {
    const auto found = std::find(left.begin(), left.end(), assignment[d]);
    if (found == left.end() || graph.coordinate(*found).extent != dims[d].extent) return false;
    left.erase(found);
  }
  return true;
}

/// The coordinates at which the step of a further input reads it, ascending; nothing where there is no step.
std::optional<std::vector<CoordinateId>> given_to(const PGraph& graph, std::size_t source) {
  const auto bound = std::find_if(graph.steps().begin(), graph.steps().end(),
                                  [&](const Step& step) { return step.source == source; });
  if (bound == graph.steps().end()) return std::nullopt;
  std::vector<CoordinateId> given = bound->operands;
  given.insert(given.end(), bound->matched.begin(), bound->matched.end());
  std::sort(given.begin(), given.end());
  return given;
}

}  // namespace

std::vector<Assignment> PGraph::completions() const {
  std::vector<Assignment> result;
  for (auto& input : assignments(*this, signature_.input, signature_.fixed, frontier_))
    result.push_back({std::move(input)});
  for (std::size_t k = 0; k < signature_.further.size(); ++k) {
    const auto given = given_to(*this, k + 1);
    if (!given) return {};
    const FurtherInput& further = signature_.further[k];
    std::vector<Assignment> longer;
    for (const Assignment& before : result) {
      for (auto& way : assignments(*this, further.dims, further.fixed, *given)) {
        longer.push_back(before);
        longer.back().further.push_back(std::move(way));
      }
    }
    result = std::move(longer);
  }
  return result;
}

namespace {

void add_size(Hasher& hasher, const Size& size) {
  hasher.add(size.factor().num()).add(size.factor().den());
  for (std::size_t i = 0; i < symbolic::kMaxVariables; ++i)
    hasher.add(static_cast<std::int8_t>(size.exponent(i)));
}

Hash128 signature_hash(const Signature& signature) {
  Hasher hasher;
  for (const auto& variable : signature.sizes.variables()) hasher.add(variable.name).add(variable.kind);
  hasher.add(signature.sizes.valuation_count());
  if (!signature.sizes.variables().empty()) {
    for (std::size_t v = 0; v < signature.sizes.valuation_count(); ++v) {
      for (const std::int64_t value : signature.sizes.valuation(v)) hasher.add(value);
    }
  }
  const auto add_dims = [&](const std::vector<Dim>& dims) {
    hasher.add(dims.size());
    for (const Dim& dim : dims) {
      add_size(hasher, dim.extent);
      hasher.add(static_cast<std::uint8_t>(dim.unordered));
    }
  };
  add_dims(signature.output);
  add_dims(signature.input);
  for (const auto& [out, in] : signature.fixed) hasher.add(out).add(in);
  for (const FurtherInput& input : signature.further) {
    add_dims(input.dims);
    for (const auto& [out, in] : input.fixed) hasher.add(out).add(in);
  }
  return hasher.finish();
}

/// Hashes of all coordinates when the Reduces carry the given labels.
std::vector<Hash128> coordinate_hashes(const PGraph& graph, const std::vector<std::size_t>& label_of_step) {
  std::vector<Hash128> hashes(graph.coordinate_count());
  for (std::uint32_t i = 0; i < graph.coordinate_count(); ++i) {
    const Coordinate& coordinate = graph.coordinate(static_cast<CoordinateId>(i));
    Hasher hasher;
    add_size(hasher, coordinate.extent);
    hasher.add(coordinate.position);
    if (coordinate.step) {
      const Step& step = graph.steps()[*coordinate.step];
      hasher.add(step.primitive).add(step.amount).add(label_of_step[*coordinate.step]);
      add_size(hasher, step.size);
      for (const CoordinateId operand : step.operands) hasher.add(hashes[number(operand)]);
    } else {
      hasher.add(std::string_view("output"));
    }
    hashes[i] = hasher.finish();
  }
  return hashes;
}

void add_sorted(Hasher& hasher, std::vector<Hash128> hashes) {
  std::sort(hashes.begin(), hashes.end());
  hasher.add(hashes.size());
  for (const Hash128& hash : hashes) hasher.add(hash);
}

/// Without an assignment: of a partial pGraph.
Hash128 labelled_hash(const PGraph& graph, const CompleteGraph* complete, const Hash128& signature,
                      const std::vector<std::size_t>& labels) {
  const std::vector<Hash128> hashes = coordinate_hashes(graph, labels);
  const auto pick = [&](const std::vector<CoordinateId>& ids) {
    std::vector<Hash128> picked;
    for (const CoordinateId id : ids) picked.push_back(hashes[number(id)]);
    return picked;
  };
  Hasher hasher;
  hasher.add(signature);
  if (complete != nullptr) {
    for (const Hash128& hash : pick(complete->input)) hasher.add(hash);
    for (const auto& further : complete->further) {
      for (const Hash128& hash : pick(further)) hasher.add(hash);
    }
  } else {
    add_sorted(hasher, pick(graph.frontier()));
  }
  std::vector<Hash128> weights;
  std::vector<Hash128> expanded;
  for (const Step& step : graph.steps()) {
    if (step.primitive == Primitive::Expand) expanded.push_back(hashes[number(step.operands[0])]);
    if (step.primitive != Primitive::Contraction) continue;
    Hasher weight;
    if (step.source != 0) weight.add(step.source);
    add_sorted(weight, pick(step.operands));
    add_sorted(weight, pick(step.matched));
    weights.push_back(weight.finish());
  }
  add_sorted(hasher, std::move(weights));
  add_sorted(hasher, std::move(expanded));
  return hasher.finish();
}

/// The least hash over all ways to number the Reduces of each extent: which of them is which has no meaning.
Hash128 least_hash(const PGraph& graph, const CompleteGraph* complete) {
  std::map<Size, std::vector<std::size_t>> classes;
  for (std::size_t i = 0; i < graph.steps().size(); ++i) {
    if (graph.steps()[i].primitive == Primitive::Reduce) classes[graph.steps()[i].size].push_back(i);
  }
  const Hash128 signature = signature_hash(graph.signature());
  std::vector<std::size_t> labels(graph.steps().size());
  std::optional<Hash128> least;
  const auto number_class = [&](const auto& self, auto at) -> void {
    if (at == classes.end()) {
      const Hash128 hash = labelled_hash(graph, complete, signature, labels);
      if (!least || hash < *least) least = hash;
      return;
    }
    std::vector<std::size_t> order(at->second.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    do {
      for (std::size_t i = 0; i < order.size(); ++i) labels[at->second[i]] = order[i];
      self(self, std::next(at));
    } while (std::next_permutation(order.begin(), order.end()));
  };
  number_class(number_class, classes.begin());
  return *least;
}

}  // namespace

Hash128 PGraph::hash() const { return least_hash(*this, nullptr); }

CompleteGraph complete(PGraph graph, std::vector<CoordinateId> input,
                       std::vector<std::vector<CoordinateId>> further) {
  const Signature& signature = graph.signature();
  bool fits = assigns(graph, signature.input, signature.fixed, graph.frontier(), input) &&
              further.size() == signature.further.size();
  for (std::size_t k = 0; fits && k < further.size(); ++k) {
    const auto given = given_to(graph, k + 1);
    fits = given && assigns(graph, signature.further[k].dims, signature.further[k].fixed, *given, further[k]);
  }
  if (!fits) {
    fail<VerifyError>("pgraph",
                      "the coordinates given for the input do not complete the pGraph: its frontier has {} "
                      "coordinates for {} open dimensions, and each dimension of an input needs its own "
                      "coordinate of the same extent",
                      graph.frontier().size(), open_dims(signature.input, signature.fixed).size());
  }
  return {std::move(graph), std::move(input), std::move(further)};
}

Hash128 hash_of(const CompleteGraph& graph) { return least_hash(graph.graph, &graph); }

}  // namespace syno::pgraph
