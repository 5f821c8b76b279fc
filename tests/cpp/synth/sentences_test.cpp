// No rule removes more than its sentence says. Of every rule that is not exact, random operators that it
// alone refuses, at random sites: what the sentence says of them is checked by other means than the rule's
// own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>

#include "draft.hpp"
#include "lower/lower.hpp"
#include "program/interpret.hpp"
#include "program/verify.hpp"
#include "random_sites.hpp"
#include "similar_share.hpp"
#include "support/error.hpp"
#include "synth/duplicates.hpp"
#include "synth/engine.hpp"
#include "synth/walk.hpp"

namespace syno::synth {
namespace {

using pgraph::CompleteGraph;
using pgraph::CoordinateId;
using pgraph::Primitive;
using testing::Draft;
using testing::pick;

/// How many operators of a rule are looked at.
std::size_t wanted_of_each() {
  const char* text = std::getenv("SYNO_TEST_REFUSED");
  return text == nullptr ? 5 : static_cast<std::size_t>(std::atoll(text));
}

// --- drawing
// -----------------------------------------------------------------------------------------------------

/// An operator and where the rule refuses it: a step, or one past the last where it refuses the finished one.
struct Refused {
  Spec spec;
  CompleteGraph graph;
  std::size_t step = 0;
};

const Rule& rule_named(std::string_view name) {
  return *std::find_if(rules().begin(), rules().end(), [&](const Rule& rule) { return rule.name == name; });
}

/// Why an operator is not in a space, and at which step: the first rule or limit that refuses one of its
/// steps, or it when it is finished; empty where nothing does.
struct Refusal {
  std::string by;
  std::size_t step = 0;
};
Refusal refused_for(const Spec& spec, const CompleteGraph& complete) {
  Engine engine(spec);
  State state = engine.root();
  std::vector<Coordinate> coordinates = engine.root_coordinates(state);
  const auto& steps = complete.graph.steps();
  for (std::size_t t = 0; t < steps.size(); ++t) {
    const Move move = engine.move_for(state, steps[t], coordinates);
    if (const Reason reason = engine.check_alone(state, move); reason != kAccepted)
      return {std::string(name_of(reason)), t};
    State next;
    engine.apply(state, move, next);
    Engine::record_results(next, coordinates);
    state = next;
  }
  const Hash128 wanted_of_each = pgraph::hash_of(complete);
  const Counters before = engine.counters;
  bool kept = false;
  engine.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work&) {
    kept = kept || pgraph::hash_of(engine.to_graph(s, position)) == wanted_of_each;
  });
  if (kept) return {};
  for (std::size_t r = 0; r < before.rejected.size(); ++r) {
    if (engine.counters.rejected[r] > before.rejected[r])
      return {std::string(name_of(static_cast<Reason>(r))), steps.size()};
  }
  return {"unfinished", steps.size()};
}

/// Random steps that everything but one rule allows, towards one that it refuses, and on to the input.
class Drawer {
 public:
  Drawer(const Rule& rule, const Spec& spec)
      : rule_(rule), spec_(spec), engine_(without(rule, spec)), walker_(engine_) {}

  std::optional<Refused> draw(Random& random) {
    State state = engine_.root();
    const int most = spec_.budgets.max_steps;
    std::size_t at = 0;
    if (rule_.removes != nullptr) {
      // Most of what may follow is not asked for; few weights ever meet where nothing leads them.
      const bool meets_weights =
          rule_.primitive == Primitive::Contraction || rule_.name == "unfold-shifts-weights";
      engine_.use_distance = meets_weights && random.below(2) == 0;
      bool fired = false;
      while (!fired) {
        const int left = most - state.step_count;
        if (left <= 0) return std::nullopt;
        std::vector<Move> moves, refused, before;
        engine_.moves(state, moves);
        for (const Move& move : moves) {
          if (move.primitive == rule_.primitive &&
              rule_.removes(Candidate{spec_, engine_.sizes(), engine_.pool(), state, move}))
            refused.push_back(move);
          if (goes_before(move.primitive)) before.push_back(move);
        }
        at = state.step_count;
        State next;
        fired = random.below(4) != 0 && taken(state, refused, left - 1, random, next);
        if (!fired && !(random.below(2) == 0 && taken(state, before, left - 1, random, next)) &&
            !taken(state, moves, left - 1, random, next))
          return std::nullopt;
        state = next;
      }
      engine_.use_distance = true;
      if (!engine_.within_distance(state, most - state.step_count)) return std::nullopt;
    }
    const WalkOptions options{.min_steps = state.step_count, .max_steps = most, .patience = 400};
    const auto accept = [&](const Found& found) {
      return rule_.removes != nullptr || refused_for(spec_, found.graph).by == rule_.name;
    };
    if (walker_.walk(state, options, random.fork(random()), barren_, accept) != Outcome::Found)
      return std::nullopt;
    const CompleteGraph& graph = walker_.found().graph;
    return Refused{spec_, graph, rule_.removes != nullptr ? at : graph.graph.steps().size()};
  }

 private:
  static Spec without(const Rule& rule, Spec spec) {
    spec.disabled_rules.emplace(rule.name);
    return spec;
  }
  /// What such a rule's step mostly stands above, as its name says.
  bool goes_before(Primitive primitive) const {
    const auto says = [&](std::string_view word) { return rule_.name.find(word) != std::string_view::npos; };
    if (says("gaps")) return primitive == Primitive::Stride;
    if (says("within-window") || says("window-order")) return primitive == Primitive::Unfold;
    if (says("match-adjacent")) return primitive == Primitive::Merge || primitive == Primitive::Contraction;
    if (rule_.primitive == Primitive::Contraction || says("shifts-weights"))
      return primitive == Primitive::Reduce || primitive == Primitive::Contraction;
    return primitive != rule_.primitive && says(pgraph::name_of(primitive));
  }
  /// One of the moves that the rest of the space allows: of a random primitive, then a random one of these.
  bool taken(const State& state, std::vector<Move> moves, int left, Random& random, State& next) {
    while (!moves.empty()) {
      const Primitive kind = moves[random.below(moves.size())].primitive;
      std::vector<std::size_t> same;
      for (std::size_t k = 0; k < moves.size(); ++k)
        if (moves[k].primitive == kind) same.push_back(k);
      const std::size_t chosen = same[random.below(same.size())];
      if (engine_.take(state, moves[chosen], left, next) == kAccepted) return true;
      moves[chosen] = moves.back();
      moves.pop_back();
    }
    return false;
  }
  const Rule& rule_;
  const Spec& spec_;
  Engine engine_;
  Walker walker_;
  BarrenTable barren_;
};

/// Sites at which a rule has work to do more often than once in ten thousand draws.
bool suits(const Rule& rule, const Spec& spec) {
  const auto all = [](const std::vector<int>& occurrences, std::initializer_list<std::size_t> variables) {
    return std::all_of(variables.begin(), variables.end(), [&](std::size_t v) { return occurrences[v] > 1; });
  };
  if (rule.name == "unfold-shifts-weights")
    return spec.name == "C_out~ H q from C_in~ H" && all(spec.occurrences, {0});
  return true;
}

/// Different operators that only this rule refuses, at most `per_site` of each site; fewer where `sites` gave
/// no more.
std::vector<Refused> refused_by(const Rule& rule, std::size_t count) {
  std::vector<Refused> result;
  const std::size_t sites = std::max<std::size_t>(4'000, 1'000 * count);
  const std::size_t per_site = 4;
  for (std::size_t n = 0; n < sites && result.size() < count; ++n) {
    Random random = Random(5).fork(rule.name).fork(n);
    Spec spec = testing::random_site(random);
    while (!suits(rule, spec)) spec = testing::random_site(random);
    std::set<Hash128> here;
    try {
      Drawer drawer(rule, spec);
      for (int draw = 0; draw < (here.empty() && rule.primitive != Primitive::Contraction ? 6 : 24) &&
                         here.size() < per_site && result.size() < count;
           ++draw) {
        std::optional<Refused> one = drawer.draw(random);
        if (one && here.insert(pgraph::hash_of(one->graph)).second) result.push_back(std::move(*one));
      }
    } catch (const SpecError&) {  // sizes that do not divide at some layer
    }
  }
  return result;
}

// --- what operators compute
// --------------------------------------------------------------------------------------

using Arrays = std::map<std::string, program::Values<double>>;

/// Arguments at a layer, made by `value(tensor, element)`.
template <class Value>
Arrays arguments(const program::Program& program, Value&& value) {
  Arrays result;
  for (const auto id : program.inputs()) {
    program::Values<double> array{program::shape_of(program, id), {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : array.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) array.data.push_back(value(program.tensor(id).name, i));
    result.emplace(program.tensor(id).name, std::move(array));
  }
  return result;
}
std::vector<double> results(const program::Program& program, const Arrays& arguments) {
  return program::interpret(program, arguments).at("y").data;
}
bool all_zero(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double y) { return y == 0; });
}

/// Which elements of a tensor no output depends on, with everything else positive.
std::size_t unused(const program::Program& program, const std::string& tensor) {
  Arrays all = arguments(program, [](const std::string&, std::int64_t) { return 1.0; });
  std::vector<double>& data = all.at(tensor).data;
  std::size_t count = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    std::fill(data.begin(), data.end(), 0);
    data[i] = 1;
    count += all_zero(results(program, all));
  }
  return count;
}

/// At how much of the work, of one, something holds.
template <class Holds>
double work_share(const Spec& spec, Holds&& holds) {
  double all = 0, held = 0;
  for (std::size_t v = 0; v < spec.signature.sizes.valuation_count(); ++v) {
    all += spec.weights[v];
    if (holds(v)) held += spec.weights[v];
  }
  return held / all;
}
/// Whether something fails where a rule of promise may not: at more of the work than the spec gives up.
template <class Holds>
bool mostly_fails(const Spec& spec, Holds&& holds) {
  return work_share(spec, holds) < spec.thresholds.promising_share - 1e-9;
}

struct Look {
  const Refused& one;
  const pgraph::PGraph& graph = one.graph.graph;
  const pgraph::Step& step() const { return graph.steps()[one.step]; }
  std::int64_t value(const Size& size, std::size_t v) const {
    return one.spec.signature.sizes.value(size, v).num();
  }
  std::int64_t extent(CoordinateId id, std::size_t v) const { return value(graph.coordinate(id).extent, v); }
  const pgraph::Step* below(CoordinateId id) const {
    const auto& made = graph.coordinate(id).step;
    return made ? &graph.steps()[*made] : nullptr;
  }
  /// All that a coordinate is made of, itself first.
  std::vector<CoordinateId> parts(CoordinateId id) const {
    std::vector<CoordinateId> all = {id};
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (const pgraph::Step* made = below(all[k]))
        all.insert(all.end(), made->operands.begin(), made->operands.end());
    }
    return all;
  }
  bool indexed(CoordinateId id) const {  // by a weight
    return std::any_of(graph.steps().begin(), graph.steps().end(), [&](const pgraph::Step& s) {
      return s.primitive == Primitive::Contraction &&
             (Draft::has(s.operands, id) || Draft::has(s.matched, id));
    });
  }
  /// The weight that the step brings in.
  std::string weight() const {
    std::size_t number = 0;
    for (std::size_t t = 0; t <= one.step; ++t)
      number += graph.steps()[t].primitive == Primitive::Contraction;
    return fmt::format("w{}", number);
  }
  template <class Holds>
  bool at_every_layer(Holds&& holds) const {
    for (std::size_t v = 0; v < one.spec.signature.sizes.valuation_count(); ++v)
      if (!holds(program::at(lower::one_scope(one.graph), v))) return false;
    return true;
  }
};

// --- what sentences say
// ---------------------------------------------------------------------------------------

std::string said(bool holds, const char* otherwise) { return holds ? std::string() : otherwise; }

/// The steps in the other order, which a similar rule keeps.
std::optional<CompleteGraph> other_order(const CompleteGraph& graph, std::size_t t) {
  Draft draft(graph);
  Draft::Line& upper = draft.lines[t];
  Draft::Line& lower = *draft.maker(upper.step.operands[0]);
  const Primitive above = upper.step.primitive, under = lower.step.primitive;
  const CoordinateId through = lower.results[0];
  if (under == Primitive::Split) {  // only the inner part shifts or slides
    upper.step.operands[0] = lower.step.operands[1];
    const CoordinateId part = draft.fresh();
    const CoordinateId last = upper.results[0];
    upper.results[0] = part;
    lower.step.operands[1] = part;
    lower.results[0] = last;
    return draft.build();
  }
  if (above == Primitive::Merge) {  // only the block shifts or slides
    upper.step.operands[0] = lower.step.operands[0];
    const CoordinateId block = draft.fresh();
    lower.results[0] = upper.results[1];
    upper.results[1] = block;
    lower.step.operands[0] = block;
    return draft.build();
  }
  upper.step.operands[0] =
      lower.step.operands[0];  // one dimension, shifted and slid over, or slid over twice
  std::swap(upper.results[0], lower.results[0]);
  std::swap(upper.results[0], lower.results[0]);
  const CoordinateId last = upper.results[0];
  upper.results[0] = through;
  lower.step.operands[0] = through;
  lower.results[0] = last;
  return draft.build();
}

std::string (*sentence_of(std::string_view rule))(const Look&);

/// A weight that matches what was shifted is one whose elements stand elsewhere.
std::optional<CompleteGraph> without_matched_shifts(const CompleteGraph& graph) {
  Draft draft(graph);
  for (Draft::Line& line : draft.lines) {
    for (CoordinateId& id : line.step.matched) {
      const Draft::Line* made = draft.maker(id);
      if (made == nullptr || made->step.primitive != Primitive::Shift) continue;
      const CoordinateId gone = id;
      id = made->step.operands[0];
      std::erase_if(draft.lines, [&](const Draft::Line& other) { return Draft::has(other.results, gone); });
      const std::optional<CompleteGraph> less = draft.build();
      return less ? without_matched_shifts(*less) : less;
    }
  }
  return graph;
}

/// It differs from what is kept at no more than the share, and that is in the space, or, where a rule refuses
/// it in its turn, the same holds of it.
std::string is_approximated(const Look& look) {
  CompleteGraph graph = look.one.graph;
  std::size_t t = look.one.step;
  for (int turns = 0; turns < 8; ++turns) {
    const double share = testing::share_at(graph.graph, t);
    if (share > look.one.spec.thresholds.similar_share) return fmt::format("{} of the points differ", share);
    std::optional<CompleteGraph> kept = other_order(graph, t);
    if (kept) kept = without_matched_shifts(*kept);
    if (!kept) return "what stands for it cannot be written";
    const Refusal next = refused_for(look.one.spec, *kept);
    if (next.by.empty()) return {};
    const auto rule =
        std::find_if(rules().begin(), rules().end(), [&](const Rule& r) { return r.name == next.by; });
    if (rule != rules().end() && rule->kind == RuleClass::Exact) return {};  // equals something kept
    if (rule == rules().end())
      return fmt::format("what stands for it is beyond {}:\n{}", next.by, pgraph::to_text(*kept));
    if (rule->kind != RuleClass::Similar) {  // then what is like it lacks the property, too, if that is true
      const Refused other{look.one.spec, *kept, next.step};
      return sentence_of(next.by)(Look{other});
    }
    graph = *kept;
    t = next.step;
  }
  return "it has no form that is kept";
}

/// A window of several blocks, point by point.
std::string is_windows_of_windows(const Look& look) {
  const pgraph::Step& unfold = *look.below(look.step().operands[0]);
  for (std::size_t v = 0; v < look.one.spec.signature.sizes.valuation_count(); ++v) {
    const std::int64_t places = look.extent(unfold.operands[0], v), taps = look.extent(unfold.operands[1], v);
    const std::int64_t block = look.value(look.step().size, v), blocks = taps / block;
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < places; ++i) {
      for (std::int64_t j = 0; j < taps; ++j) {
        const std::int64_t at = i + j - taps / 2;
        const std::int64_t major = i / block + j / block - blocks / 2,
                           minor = i % block + j % block - block / 2;
        const bool read = at >= 0 && at < places;
        const bool kept = minor >= 0 && minor < block && major >= 0 && major < places / block;
        different += read != kept || (read && at != major * block + minor);
      }
    }
    const double share = static_cast<double>(different) / static_cast<double>(places * taps);
    if (taps % block != 0 || share > look.one.spec.thresholds.similar_share)
      return fmt::format("{} of the points differ", share);
  }
  return {};
}

/// All weights as one that indexes what they index; what only weights index is summed within it.
std::optional<CompleteGraph> as_one_weight(Draft draft) {
  pgraph::Step one{.primitive = Primitive::Contraction, .operands = {}, .matched = {}, .size = {}};
  std::vector<CoordinateId> shared, matched;
  for (const Draft::Line& line : draft.lines) {
    if (line.step.primitive != Primitive::Contraction) continue;
    for (const auto id : line.step.operands)
      if (!Draft::has(shared, id)) shared.push_back(id);
    matched.insert(matched.end(), line.step.matched.begin(), line.step.matched.end());
  }
  std::erase_if(draft.lines,
                [](const Draft::Line& line) { return line.step.primitive == Primitive::Contraction; });
  for (const auto id : shared)
    if (!Draft::has(matched, id)) one.operands.push_back(id);
  for (const auto id : matched) {
    const bool summed = std::erase_if(draft.lines, [&](const Draft::Line& line) {
                          return line.step.primitive == Primitive::Reduce && line.results[0] == id;
                        }) > 0;
    if (!summed) one.matched.push_back(id);
  }
  draft.lines.push_back({one, {}});
  return draft.build();
}

/// Elements of all weights of an operator, at a layer.
double elements(const Spec& spec, const CompleteGraph& complete, std::size_t v) {
  double sum = 0;
  for (const pgraph::Step& step : complete.graph.steps()) {
    if (step.primitive != Primitive::Contraction) continue;
    double product = 1;
    for (const auto* list : {&step.operands, &step.matched})
      for (const auto id : *list)
        product *=
            static_cast<double>(spec.signature.sizes.value(complete.graph.coordinate(id).extent, v).num());
    sum += product;
  }
  return sum;
}
double multiply_adds(const CompleteGraph& graph, std::size_t v) {
  return static_cast<double>(program::cost(lower::staged(graph), v).flops);
}

/// Where y is that of a weight of ones times what does not depend on x: the weight only scales.
bool only_scales(const Look& look, const std::string& weight) {
  return look.at_every_layer([&](const program::Program& program) {
    const auto with = [&](int x, bool ones) {
      return results(program, arguments(program, [&](const std::string& name, std::int64_t i) {
                       if (name == weight) return ones ? 1.0 : 1.0 + static_cast<double>(i % 7);
                       return 1.0 + static_cast<double>((name == "x" ? 5 * i + x * (i % 3 + 1) : 3 * i) % 11);
                     }));
    };
    const std::vector<double> a1 = with(0, true), a2 = with(0, false), b1 = with(4, true),
                              b2 = with(4, false);
    for (std::size_t i = 0; i < a1.size(); ++i)
      if (std::abs(a2[i] * b1[i] - a1[i] * b2[i]) > 1e-9 * std::abs(a1[i] * b1[i])) return false;
    return true;
  });
}

/// The weight brought in before the ones it meets: what it matched it shares, and they match that instead.
std::string is_kept_in_another_order(const Look& look) {
  if (only_scales(look, look.weight())) return {};
  Draft draft(look.one.graph);
  pgraph::Step& last = draft.lines[look.one.step].step;
  std::vector<CoordinateId> met;
  for (Draft::Line& line : draft.lines) {
    if (&line.step == &last || line.step.primitive != Primitive::Contraction) continue;
    for (const auto id : last.matched) {
      if (!Draft::has(line.step.operands, id) || Draft::has(met, id)) continue;
      std::erase(line.step.operands, id);
      line.step.matched.push_back(id);
      met.push_back(id);
    }
  }
  for (const auto id : met) {
    std::erase(last.matched, id);
    last.operands.push_back(id);
  }
  std::rotate(draft.lines.begin(), draft.lines.begin() + static_cast<std::ptrdiff_t>(look.one.step),
              draft.lines.begin() + static_cast<std::ptrdiff_t>(look.one.step) + 1);
  const std::optional<CompleteGraph> kept = draft.build();
  if (!kept) return "it does more than scale, and has no other order of its weights";
  OperatorKeys keys;
  if (keys(*kept) != keys(look.one.graph))
    return "it does more than scale, and in another order it is another operator";
  const Refusal next = refused_for(look.one.spec, *kept);
  const auto rule =
      std::find_if(rules().begin(), rules().end(), [&](const Rule& r) { return r.name == next.by; });
  if (next.by.empty() || (rule != rules().end() && rule->kind != RuleClass::Similar)) return {};
  return fmt::format("its other order is refused by {}:\n{}", next.by, pgraph::to_text(*kept));
}

std::string has_a_matched_twin(const Look& look) {
  const CoordinateId gone = look.step().operands[0];
  const pgraph::Step* made = look.below(gone);
  if (made != nullptr && made->primitive == Primitive::Merge) {
    const bool minor = look.graph.coordinate(gone).position == 1;
    return said(!look.one.spec.extensions.contains(minor ? "repeat" : "tile"), "the extension is on");
  }
  for (const CoordinateId id : look.parts(gone)) {
    if (!look.indexed(id)) continue;
    Draft draft(look.one.graph);
    draft.lines.erase(draft.lines.begin() + static_cast<std::ptrdiff_t>(look.one.step));
    for (auto line = draft.lines.rbegin(); line != draft.lines.rend(); ++line) {
      if (line->step.primitive != Primitive::Contraction || !Draft::has(line->step.operands, gone)) continue;
      std::erase(line->step.operands, gone);
      line->step.matched.push_back(gone);
      break;
    }
    const std::optional<CompleteGraph> kept = draft.build();
    if (!kept) return "a weight indexes it, and cannot match it";
    OperatorKeys keys;
    return said(keys(*kept) == keys(look.one.graph), "matched it makes another operator");
  }
  return {};
}

/// A window over a sum that weights index: as one weight over the places that are read they have no more
/// elements.
std::string is_one_weight_over_the_sum(const Look& look) {
  const CoordinateId sum = look.step().operands[0], window = look.step().operands[1];
  const CoordinateId read = look.graph.results_of(look.one.step)[0];
  const auto indexed = [&](CoordinateId whole) {
    const std::vector<CoordinateId> parts = look.parts(whole);
    return std::any_of(parts.begin(), parts.end(), [&](CoordinateId id) { return look.indexed(id); });
  };
  if (!indexed(sum)) return {};
  // The weights so far, as one: at a place that the window reads, and at all else that they index.
  std::set<CoordinateId> places, others, met;
  for (const CoordinateId whole : {sum, window})
    for (const CoordinateId id : look.parts(whole)) {
      places.insert(id);
      if (look.below(id) == nullptr) others.insert(id);  // of the output: another weight at each place of it
    }
  std::vector<const pgraph::Step*> weights;
  for (std::size_t t = 0; t < look.one.step; ++t) {
    const pgraph::Step& step = look.graph.steps()[t];
    if (step.primitive != Primitive::Contraction) continue;
    if (std::any_of(step.operands.begin(), step.operands.end(),
                    [&](CoordinateId id) { return places.contains(id); }))
      weights.push_back(&step);
  }
  for (const pgraph::Step* step : weights)
    for (const CoordinateId id : step->matched) {
      const pgraph::Step* made = look.below(id);
      (made != nullptr && made->primitive == Primitive::Reduce ? met : others).insert(id);
    }
  for (const pgraph::Step* step : weights)
    for (const CoordinateId id : step->operands)
      if (!places.contains(id) && !met.contains(id)) others.insert(id);
  return said(mostly_fails(look.one.spec,
                           [&](std::size_t v) {
                             auto one = static_cast<double>(look.extent(read, v));
                             for (const CoordinateId id : others)
                               one *= static_cast<double>(look.extent(id, v));
                             double all = 0;
                             for (const pgraph::Step* step : weights) {
                               double elements = 1;
                               for (const auto* list : {&step->operands, &step->matched})
                                 for (const CoordinateId id : *list)
                                   elements *= static_cast<double>(look.extent(id, v));
                               all += elements;
                             }
                             return all < one;
                           }),
              "as one weight they have more elements");
}

struct Sentence {
  const char* rule;
  std::string (*holds)(const Look&);  ///< empty: yes; otherwise what is wrong
};

const Sentence kSentences[] = {
    {"shift-above-split", is_approximated},
    {"merge-above-shift", is_approximated},
    {"merge-above-unfold", is_approximated},
    {"unfold-above-split", is_approximated},
    {"unfold-above-shift", is_approximated},
    {"unfold-window-order", is_approximated},
    {"merge-above-uneven-split",
     [](const Look& look) {
       const Size inner = look.graph.coordinate(look.below(look.step().operands[0])->operands[1]).extent;
       const Sizes& sizes = look.one.spec.signature.sizes;
       const auto whole = [&](const Size& ratio) {  // as a formula, and at every layer
         for (std::size_t i = 0; i < sizes.variables().size(); ++i)
           if (sizes.variables()[i].kind == symbolic::VariableKind::Primary && ratio.exponent(i) < 0)
             return false;
         for (std::size_t v = 0; v < sizes.valuation_count(); ++v)
           if (sizes.value(ratio, v).den() != 1) return false;
         return true;
       };
       if (look.one.spec.extensions.contains("uneven_blocks")) return std::string("the extension is on");
       return said(!whole(inner / look.step().size) && !whole(look.step().size / inner), "the blocks nest");
     }},
    {"merge-within-window", is_windows_of_windows},
    {"unfold-window-unshared",
     [](const Look& look) {
       return said(look.below(look.step().operands[1])->primitive == Primitive::Reduce &&
                       !look.indexed(look.step().operands[1]),
                   "a weight indexes the window");
     }},
    {"unfold-of-reduces", is_one_weight_over_the_sum},
    {"unfold-shifts-weights",
     [](const Look& look) {
       const auto outputs = [&](CoordinateId whole) {
         const std::vector<CoordinateId> parts = look.parts(whole);
         return std::any_of(parts.begin(), parts.end(),
                            [&](CoordinateId id) { return look.below(id) == nullptr; });
       };
       if (look.one.spec.extensions.contains("shifted_weights")) return std::string("the extension is on");
       if (outputs(look.step().operands[0])) return std::string("the window slides over the output");
       return said(outputs(look.step().operands[1]), "the window is summed");
     }},
    {"unfold-even-window",
     [](const Look& look) {
       bool even = false;
       for (std::size_t v = 0; v < look.one.spec.signature.sizes.valuation_count(); ++v)
         even = even || look.extent(look.step().operands[1], v) % 2 == 0;
       return said(even, "the window is odd at every layer");
     }},
    {"unfold-large-window",
     [](const Look& look) {
       const Thresholds& limits = look.one.spec.thresholds;
       return said(
           mostly_fails(look.one.spec,
                        [&](std::size_t v) {
                          const auto window = static_cast<double>(look.extent(look.step().operands[1], v));
                          const auto over = static_cast<double>(look.extent(look.step().operands[0], v));
                          return window <= limits.max_window && over >= limits.unfold_ratio * window;
                        }),
           "the window is small where most of the work is done");
     }},
    {"stride-large",
     [](const Look& look) {
       return said(mostly_fails(look.one.spec,
                                [&](std::size_t v) {
                                  return static_cast<double>(look.value(look.step().size, v)) <=
                                         look.one.spec.thresholds.max_stride;
                                }),
                   "the gaps are small where most of the work is done");
     }},
    {"stride-without-use",
     [](const Look& look) {
       bool window = true;
       for (const CoordinateId id : look.parts(look.step().operands[0]))
         window = window && (look.below(id) != nullptr);
       return said(!look.one.spec.extensions.contains(window ? "dilated_windows" : "strided_inputs"),
                   "the extension is on");
     }},
    {"expand-not-above-merge", has_a_matched_twin},
    {"expand-large",
     [](const Look& look) {
       return said(mostly_fails(look.one.spec,
                                [&](std::size_t v) {
                                  double times = 1;
                                  for (std::size_t t = 0; t <= look.one.step; ++t) {
                                    const pgraph::Step& step = look.graph.steps()[t];
                                    if (step.primitive == Primitive::Expand)
                                      times *= static_cast<double>(look.extent(step.operands[0], v));
                                  }
                                  return times <= look.one.spec.thresholds.max_repeat;
                                }),
                   "it repeats no more often than the limit");
     }},
    {"weight-without-shared", is_kept_in_another_order},
    {"weight-without-matched",
     [](const Look& look) {
       return said(look.step().matched.empty() && !look.one.spec.extensions.contains("depthwise"),
                   "it matches something");
     }},
    {"weights-larger-than-product",
     [](const Look& look) {
       const std::optional<CompleteGraph> one = as_one_weight(Draft(look.one.graph));
       if (!one) return std::string();  // a view of what the first weight shares comes before the second one
       return said(mostly_fails(look.one.spec,
                                [&](std::size_t v) {
                                  return elements(look.one.spec, look.one.graph, v) <
                                         elements(look.one.spec, *one, v);
                                }),
                   "as one weight they have more elements");
     }},
    {"weight-shares-gaps",
     [](const Look& look) {
       return said(look.at_every_layer([&](const program::Program& program) {
         std::size_t gaps = 0;
         for (std::size_t w = 1; w <= look.graph.weights().size(); ++w)
           gaps += unused(program, fmt::format("w{}", w));
         return gaps > 0;
       }),
                   "all elements of all weights are used");
     }},
    {"pools-too-much",
     [](const Look& look) {
       const auto pooled = [&](const auto& self, CoordinateId id, std::size_t v) -> double {
         const bool shared =
             std::any_of(look.graph.steps().begin(), look.graph.steps().end(), [&](const pgraph::Step& s) {
               return s.primitive == Primitive::Contraction && Draft::has(s.operands, id);
             });
         const pgraph::Step* made = look.below(id);
         if (shared || made == nullptr) return 1;
         if (made->primitive == Primitive::Reduce) return static_cast<double>(look.extent(id, v));
         double product = 1;
         for (const auto operand : made->operands) product *= self(self, operand, v);
         return product;
       };
       return said(mostly_fails(look.one.spec,
                                [&](std::size_t v) {
                                  double product = 1;
                                  for (const auto id : look.one.graph.input) product *= pooled(pooled, id, v);
                                  return product <= look.one.spec.budgets.max_pooling;
                                }),
                   "it averages less than the limit");
     }},
    {"discards-data",
     [](const Look& look) {
       return said(
           look.at_every_layer([](const program::Program& program) { return unused(program, "x") > 0; }),
           "all of the input is read");
     }},
    {"has-no-weight", [](const Look& look) { return said(look.graph.weights().empty(), "it has a weight"); }},
};

std::string is_a_sum_with_gaps(const Look& look) {
  bool strided = false;
  for (const CoordinateId id : look.parts(look.step().operands[0])) {
    if (look.below(id) == nullptr) return "it is made of the output";
    strided = strided || look.below(id)->primitive == Primitive::Stride;
  }
  if (look.one.spec.extensions.contains("strided_inputs")) return "the extension is on";
  return said(strided, "the sum has no gaps");
}

/// Sentences of rules that refuse next to no operator alone; rules_test.cpp has a case of each.
const Sentence kRareSentences[] = {
    {"merge-of-strided-sum", is_a_sum_with_gaps},
    {"unfold-of-strided-sum", is_a_sum_with_gaps},
};

std::string (*sentence_of(std::string_view rule))(const Look&) {
  for (const Sentence& sentence : kSentences)
    if (sentence.rule == rule) return sentence.holds;
  for (const Sentence& sentence : kRareSentences)
    if (sentence.rule == rule) return sentence.holds;
  return [](const Look&) {
    return std::string("what stands for it is refused by a rule without a sentence here");
  };
}

class SentenceHolds : public ::testing::TestWithParam<Sentence> {};

TEST_P(SentenceHolds, OfRandomOperatorsThatOnlyTheRuleRefuses) {
  const Rule& rule = rule_named(GetParam().rule);
  const std::vector<Refused> refused = refused_by(rule, wanted_of_each());
  std::size_t wrong = 0;
  for (const Refused& one : refused) {
    const std::string why = GetParam().holds(Look{one});
    if (why.empty() || wrong++ > 2) continue;
    ADD_FAILURE() << rule.name << " at step " << one.step + 1 << ": " << why << "\n"
                  << pgraph::to_text(one.graph);
  }
  EXPECT_EQ(wrong, 0U) << "of " << refused.size();
  EXPECT_GE(refused.size(), wanted_of_each());
}
INSTANTIATE_TEST_SUITE_P(Table, SentenceHolds, ::testing::ValuesIn(kSentences), [](const auto& info) {
  std::string name = info.param.rule;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace syno::synth
