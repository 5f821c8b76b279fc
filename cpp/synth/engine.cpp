#include "synth/engine.hpp"

#include <algorithm>
#include <bit>

#include "support/error.hpp"
#include "support/interrupt.hpp"

namespace syno::synth {
namespace {

using P = pgraph::Primitive;

constexpr std::size_t index(P primitive) { return static_cast<std::size_t>(primitive); }

bool within(const Usage& usage, const Usage& left) {
  bool ok = true;
  for (std::size_t i = 0; i < usage.size(); ++i) ok = ok && usage[i] <= left[i];
  return ok;
}
void take_from(Usage& left, const Usage& usage) {
  for (std::size_t i = 0; i < usage.size(); ++i) left[i] = static_cast<std::int8_t>(left[i] - usage[i]);
}
bool may(int used, int limit) { return limit == kNoLimit || used < limit; }
int open_count(int used, int limit) { return limit == kNoLimit ? 100 : limit - used; }

constexpr std::array<std::string_view, 13> kLimitNames = {
    "order",          "distance",    "max_chain",  "max_reduction_ratio", "min_weight_params",
    "max_params",     "max_flops",   "min_flops",  "max_bytes",           "max_matched",
    "matched_reduce", "max_pooling", "occurrences"};

std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185ULL;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44dULL;
  return x ^ (x >> 33);
}

}  // namespace

Reason reason_of(Limit limit) {
  return static_cast<Reason>(rules().size() + static_cast<std::size_t>(limit));
}

std::string_view name_of(Reason reason) {
  if (reason < rules().size()) return rules()[reason].name;
  return kLimitNames[reason - rules().size()];
}

void Counters::add(const Counters& other) {
  children += other.children;
  states += other.states;
  finished += other.finished;
  for (std::size_t i = 0; i < rejected.size(); ++i) rejected[i] += other.rejected[i];
}

Engine::Engine(Spec spec) : spec_((check(spec), std::move(spec))), sizes_(spec_) {
  const auto& signature = spec_.signature;
  for (std::size_t r = 0; r < rules().size(); ++r) {
    const Rule& rule = rules()[r];
    if (spec_.disabled_rules.contains(rule.name)) continue;
    if (rule.removes != nullptr) {
      rules_of_[index(rule.primitive)].push_back(static_cast<std::uint16_t>(r));
    } else {
      finished_rules_.push_back(static_cast<std::uint16_t>(r));
    }
  }
  const auto off = [&](std::initializer_list<std::string_view> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return spec_.disabled_rules.contains(name); });
  };
  // Where similar rules remove little, the distance takes it that they remove nothing.
  const bool any = spec_.thresholds.similar_share < 1;
  freedom_.merges =
      any ||
      off({"merge-above-reduce", "merge-above-share", "merge-above-split", "merge-above-uneven-split",
           "merge-left-chain", "merge-above-shift", "merge-of-strided-sum"}) ||
      spec_.extensions.contains("uneven_blocks");
  freedom_.shifts = any || off({"shift-above-reduce", "shift-above-share", "shift-above-shift",
                                "shift-unordered", "shift-above-split"});
  freedom_.slides = any || off({"unfold-above-split", "unfold-above-shift", "unfold-of-reduces"}) ||
                    spec_.extensions.contains("shifted_weights") ||
                    off({"unfold-shifts-weights", "unfold-of-strided-sum"});
  freedom_.expands = off({"expand-not-above-merge"});
  freedom_.windows = off({"unfold-window-unshared"}) || spec_.extensions.contains("weightless");
  freedom_.large_windows = off({"unfold-large-window"});
  freedom_.gaps = off({"discards-data", "stride-without-use"});
  freedom_.strides = off({"stride-without-use", "unfold-of-strided-sum", "merge-of-strided-sum"}) ||
                     spec_.extensions.contains("strided_inputs");
  freedom_.any_match = off({"weight-matches-adjacent", "weights-match-adjacent"});
  freedom_.even_windows = off({"unfold-even-window"}) || spec_.extensions.contains("even_windows") ||
                          spec_.extensions.contains("dilated_windows");
  for (const auto& dim : signature.output)
    output_elements_ = sizes_.times(output_elements_, sizes_.intern(dim.extent));
  for (std::size_t i = 0; i < signature.input.size(); ++i) {
    const SizeNumber extent = sizes_.intern(signature.input[i].extent);
    input_elements_ = sizes_.times(input_elements_, extent);
    if (std::any_of(signature.fixed.begin(), signature.fixed.end(),
                    [&](const auto& p) { return p.second == i; }))
      continue;
    open_inputs_.push_back(i);
    wanted_.push_back(extent);
    open_input_elements_ = sizes_.times(open_input_elements_, extent);
  }
  wanted_sorted_ = wanted_;
  std::sort(wanted_sorted_.begin(), wanted_sorted_.end());
  for (const SizeNumber extent : sizes_.reduce_extents()) {
    reduce_choices_.emplace_back(extent, sizes_[extent].magnitude);
    if (sizes_[extent].coefficient) stride_choices_.push_back(extent);
  }
  weightless_ = spec_.extensions.contains("weightless") || spec_.disabled_rules.contains("has-no-weight") ||
                !signature.further.empty();
  if (spec_.budgets.max_strides != 0) {
    const int count =
        spec_.budgets.max_strides == kNoLimit ? spec_.budgets.max_steps : spec_.budgets.max_strides;
    double largest = 1;
    for (const SizeNumber stride : stride_choices_) largest = std::max(largest, sizes_[stride].greatest);
    for (int i = 0; i < count; ++i) largest_stride_ *= largest;
  }
  distance_.emplace(sizes_, spec_, wanted_, freedom_);
  further_.emplace(sizes_, spec_, wanted_, freedom_);
  work_.emplace(sizes_, input_elements_, further_->elements(), output_elements_);
}

State Engine::root() {
  State state;
  for (std::size_t i = 0; i < spec_.occurrences.size(); ++i) {
    state.left[i] = static_cast<std::int8_t>(spec_.occurrences[i]);
  }
  const auto& signature = spec_.signature;
  for (std::size_t i = 0; i < signature.output.size(); ++i) {
    if (std::any_of(signature.fixed.begin(), signature.fixed.end(),
                    [&](const auto& p) { return p.first == i; }))
      continue;
    CoordinateNode node;
    node.kind = Kind::Output;
    node.unordered = signature.output[i].unordered;
    node.amount = static_cast<std::int8_t>(i);
    node.extent = sizes_.intern(signature.output[i].extent);
    FrontierDim dim;
    dim.coordinate = pool_.make(node, sizes_);
    dim.extent = node.extent;
    state.dims[state.dim_count++] = dim;
  }
  return state;
}

std::vector<Coordinate> Engine::root_coordinates(const State& root) const {
  std::vector<Coordinate> result(spec_.signature.output.size());
  for (std::size_t k = 0; k < root.dim_count; ++k) {
    result[static_cast<std::size_t>(pool_[root.dims[k].coordinate].amount)] = root.dims[k].coordinate;
  }
  return result;
}

bool Engine::reduces_open(const State& state) const {
  return state.used[index(P::Reduce)] == state.step_count;
}

void Engine::moves(const State& state, std::vector<Move>& out, std::optional<int> steps_left) {
  out.clear();
  const Budgets& budgets = spec_.budgets;
  if (state.step_count >= kMaxSteps) return;
  const bool room = state.dim_count < kMaxFrontier;
  if (room && reduces_open(state) && state.step_count < budgets.max_reductions) {
    const SizeNumber least = state.step_count == 0 ? 0 : state.path[state.step_count - 1U].parameter;
    for (const auto& [extent, usage] : reduce_choices_) {
      if (extent < least || !within(usage, state.left)) continue;
      // No rule looks at a Reduce: take() would refuse it for the same reason.
      if (steps_left && !within_reduction_ratio(state, extent)) {
        ++counters.children;
        ++counters.rejected[reason_of(Limit::ReductionRatio)];
        continue;
      }
      out.push_back({.primitive = P::Reduce, .parameter = extent});
    }
    // Reduces come first: where nothing but another one leads on, the rest need not be looked at.
    if (steps_left && use_distance && !within_distance(state, *steps_left, false)) return;
  }
  for (std::uint8_t i = 0; i < state.dim_count; ++i) {
    if (room && may(state.used[index(P::Merge)], budgets.max_merges)) {
      for (const BlockChoice& choice : sizes_.blocks(state.dims[i].extent)) {
        if (within(choice.usage, state.left))
          out.push_back({.primitive = P::Merge, .i = i, .parameter = choice.block});
      }
    }
    if (may(state.used[index(P::Shift)], budgets.max_shifts)) {
      out.push_back({.primitive = P::Shift, .i = i, .amount = 1});
      if (spec_.extensions.contains("negative_shifts"))
        out.push_back({.primitive = P::Shift, .i = i, .amount = -1});
    }
    if (may(state.used[index(P::Stride)], budgets.max_strides)) {
      for (const SizeNumber stride : stride_choices_) {
        if (within(sizes_[stride].magnitude, state.left) &&
            sizes_[sizes_.times(stride, state.dims[i].extent)].legal) {
          out.push_back({.primitive = P::Stride, .i = i, .parameter = stride});
        }
      }
    }
    if (may(state.used[index(P::Expand)], budgets.max_expands))
      out.push_back({.primitive = P::Expand, .i = i});
    for (std::uint8_t j = 0; j < state.dim_count; ++j) {
      if (i == j) continue;
      if (may(state.used[index(P::Split)], budgets.max_splits) &&
          sizes_[sizes_.times(state.dims[i].extent, state.dims[j].extent)].legal) {
        out.push_back({.primitive = P::Split, .i = i, .j = j});
      }
      if (may(state.used[index(P::Unfold)], budgets.max_unfolds) &&
          sizes_[state.dims[j].extent].coefficient &&
          sizes_.fits_inside(state.dims[j].extent, state.dims[i].extent)) {
        out.push_back({.primitive = P::Unfold, .i = i, .j = j});
      }
    }
  }
  if (weights_left(state) > 0) contraction_moves(state, out);
  further_->moves(state, out);
}

int Engine::weights_left(const State& state) const {
  return spec_.budgets.max_weights - (state.weight_count - std::popcount(state.data));
}

/// Every way to mark frontier positions as shared, matched or neither within the occurrence limits.
void Engine::contraction_moves(const State& state, std::vector<Move>& out) {
  Move move{.primitive = P::Contraction};
  const auto choose = [&](const auto& self, std::uint8_t at, const Usage& left) -> void {
    if (at == state.dim_count) {
      if ((move.inner | move.outer) != 0) out.push_back(move);
      return;
    }
    self(self, static_cast<std::uint8_t>(at + 1), left);
    const FrontierDim& dim = state.dims[at];
    const Usage& usage = sizes_[dim.extent].primary;
    if (!within(usage, left)) return;
    Usage rest = left;
    take_from(rest, usage);
    const auto bit = static_cast<std::uint16_t>(1U << at);
    move.inner = static_cast<std::uint16_t>(move.inner | bit);
    self(self, static_cast<std::uint8_t>(at + 1), rest);
    move.inner = static_cast<std::uint16_t>(move.inner & ~bit);
    const Kind kind = pool_[dim.coordinate].kind;
    const bool matchable = kind == Kind::Output || kind == Kind::MergeMajor || kind == Kind::MergeMinor ||
                           (kind == Kind::Reduce && dim.shared != 0);
    if (!matchable) return;
    move.outer = static_cast<std::uint16_t>(move.outer | bit);
    self(self, static_cast<std::uint8_t>(at + 1), rest);
    move.outer = static_cast<std::uint16_t>(move.outer & ~bit);
  };
  choose(choose, 0, state.left);
}

Reason Engine::judge(const State& state, const Move& move) {
  const Candidate candidate{spec_, sizes_, pool_, state, move};
  for (const std::uint16_t rule : rules_of_[index(move.primitive)]) {
    if (rules()[rule].removes(candidate)) return rule;
  }
  return kAccepted;
}

std::uint64_t Engine::letter_key(const State& state, const Move& move) const {
  if (move.primitive == P::Reduce) return 0;
  std::uint64_t h = scramble(static_cast<std::uint64_t>(move.primitive) + 1);
  if (move.primitive == P::Contraction) {
    for (std::size_t k = 0; k < state.dim_count; ++k) {
      const std::uint64_t dim = pool_[state.dims[k].coordinate].hash;
      if ((move.inner >> k & 1) != 0) h += scramble(dim);
      if ((move.outer >> k & 1) != 0) h += scramble(~dim);
    }
    if (move.source != 0) h += scramble(move.source);
    return scramble(h) >> 2 | 1ULL << 63;
  }
  h = scramble(h ^ pool_[state.dims[move.i].coordinate].hash);
  if (move.primitive == P::Split || move.primitive == P::Unfold)
    h = scramble(h + pool_[state.dims[move.j].coordinate].hash);
  h = scramble(h ^ sizes_[move.parameter].hash ^
               static_cast<std::uint64_t>(static_cast<std::int64_t>(move.amount)));
  return h >> 2 | 1ULL << 62;
}

/// Of all orders in which commuting steps can be taken only the lexicographically least is generated: a step
/// is refused when a greater one stands among those it could have preceded. Reduces are least and
/// contractions greatest, so that Reduces come first and views are pushed below contractions (Syno §6, Fig.
/// 4b).
bool Engine::in_order(const State& state, const Move& move, std::uint64_t key) const {
  std::size_t after = 0;
  const auto follow = [&](std::uint8_t step) { after = std::max<std::size_t>(after, step); };
  if (move.primitive == P::Contraction) {
    for (std::size_t k = 0; k < state.dim_count; ++k) {
      if ((move.inner >> k & 1) != 0) follow(state.dims[k].producer);
      if ((move.outer >> k & 1) != 0) follow(state.dims[k].touched);
    }
  } else if (move.primitive != P::Reduce) {
    follow(state.dims[move.i].touched);
    if (move.primitive == P::Split || move.primitive == P::Unfold) follow(state.dims[move.j].touched);
  }
  for (std::size_t t = after; t < state.step_count; ++t) {
    if (state.path[t].key > key) return false;
  }
  return true;
}

void Engine::apply(const State& state, const Move& move, State& next) {
  next = state;
  Letter& letter = next.path[next.step_count];
  letter = Letter();
  letter.primitive = move.primitive;
  letter.amount = move.amount;
  letter.parameter = move.parameter;
  letter.key = letter_key(state, move);
  const auto number = static_cast<std::uint8_t>(++next.step_count);
  ++next.used[index(move.primitive)];
  const FrontierDim i = state.dims[move.i];
  const FrontierDim j = state.dims[move.j];
  const auto remove = [&](std::size_t position) {
    for (std::size_t k = position; k + 1 < next.dim_count; ++k) next.dims[k] = next.dims[k + 1];
    --next.dim_count;
  };
  const auto yield = [&](Kind kind, SizeNumber extent, Coordinate a, Coordinate b) {
    CoordinateNode node;
    node.kind = kind;
    node.extent = extent;
    node.a = a;
    node.b = b;
    node.amount = move.amount;
    if (kind == Kind::MergeMajor || kind == Kind::MergeMinor || kind == Kind::Stride)
      node.parameter = move.parameter;
    if (kind == Kind::MergeMajor || kind == Kind::MergeMinor) node.unordered = pool_[a].unordered;
    if (kind == Kind::Reduce) {
      for (std::size_t t = 0; t + 1 < next.step_count; ++t) {
        if (next.path[t].primitive == P::Reduce && next.path[t].parameter == extent) ++node.amount;
      }
    }
    FrontierDim dim;
    dim.coordinate = pool_.make(node, sizes_);
    dim.extent = extent;
    dim.producer = dim.touched = number;
    if (kind != Kind::Reduce) {
      dim.history = i.history;
      dim.height = static_cast<std::uint8_t>(i.height + 1);
      dim.discards = i.discards;
      // A part of the places may take all of its own; all of them never do.
      dim.gaps = i.gaps && kind != Kind::MergeMajor && kind != Kind::MergeMinor;
    }
    if (b != 0) {
      dim.history = static_cast<std::uint8_t>(dim.history | j.history);
      dim.height = static_cast<std::uint8_t>(std::max(i.height, j.height) + 1);
      dim.discards = i.discards || j.discards;
      dim.gaps = i.gaps || j.gaps;
    }
    next.dims[next.dim_count++] = dim;
    (letter.first == 0 ? letter.first : letter.second) = dim.coordinate;
    return &next.dims[next.dim_count - 1U];
  };
  switch (move.primitive) {
    case P::Reduce:
      take_from(next.left, sizes_[move.parameter].magnitude);
      next.reduces = sizes_.times(next.reduces, move.parameter);
      yield(Kind::Reduce, move.parameter, 0, 0);
      break;
    case P::Merge: {
      letter.a = i.coordinate;
      if (const auto choice = sizes_.block_of(i.extent, sizes_[move.parameter].packed))
        take_from(next.left, choice->usage);
      remove(move.i);
      const SizeNumber group = sizes_.over(i.extent, move.parameter);
      yield(Kind::MergeMajor, group, i.coordinate, 0);
      yield(Kind::MergeMinor, move.parameter, i.coordinate, 0);
      break;
    }
    case P::Shift:
      letter.a = i.coordinate;
      remove(move.i);
      yield(Kind::Shift, i.extent, i.coordinate, 0);
      break;
    case P::Stride:
      letter.a = i.coordinate;
      take_from(next.left, sizes_[move.parameter].magnitude);
      remove(move.i);
      {
        FrontierDim* dim = yield(Kind::Stride, sizes_.times(i.extent, move.parameter), i.coordinate, 0);
        dim->discards = dim->gaps = true;
      }
      break;
    case P::Split:
    case P::Unfold: {
      letter.a = i.coordinate;
      letter.b = j.coordinate;
      remove(std::max(move.i, move.j));
      remove(std::min(move.i, move.j));
      if (move.primitive == P::Split) {
        yield(Kind::Split, sizes_.times(i.extent, j.extent), i.coordinate, j.coordinate);
        break;
      }
      FrontierDim* dim = yield(Kind::Unfold, i.extent, i.coordinate, j.coordinate);
      // A window at least as wide as the gaps of a strided dimension reads everything; a dilated window
      // slides over every element.
      const CoordinateNode& left = pool_[i.coordinate];
      dim->discards = i.discards && !(left.kind == Kind::Stride &&
                                      sizes_[j.extent].least >= sizes_[left.parameter].greatest);
      dim->gaps =
          i.gaps && left.kind == Kind::Stride && sizes_[j.extent].greatest < sizes_[left.parameter].least;
      break;
    }
    case P::Expand:
      letter.a = i.coordinate;
      remove(move.i);
      next.expanded[next.expanded_count++] = i.coordinate;
      break;
    case P::Contraction: {
      const std::uint8_t w = next.weight_count++;
      letter.weight = w;
      WeightRecord& weight = next.weights[w];
      weight = WeightRecord();
      weight.source = move.source;
      if (move.source != 0) next.data = static_cast<std::uint8_t>(next.data | 1U << w);
      std::size_t kept = 0;
      for (std::size_t k = 0; k < state.dim_count; ++k) {
        FrontierDim dim = state.dims[k];
        const bool inner = (move.inner >> k & 1) != 0;
        const bool outer = (move.outer >> k & 1) != 0;
        if ((inner || outer) && move.source == 0) take_from(next.left, sizes_[dim.extent].primary);
        if (outer) {
          weight.outer[weight.outer_count++] = dim.coordinate;
          continue;
        }
        if (inner) {
          weight.inner[weight.inner_count++] = dim.coordinate;
          dim.shared = static_cast<std::uint8_t>(dim.shared | 1U << w);
          dim.history = static_cast<std::uint8_t>(dim.history | 1U << w);
          ++dim.height;
          dim.touched = number;
        }
        next.dims[kept++] = dim;
      }
      next.dim_count = static_cast<std::uint8_t>(kept);
      break;
    }
  }
}

/// What the rules still allow of a coordinate, as far as it decides alone.
Traits Engine::traits_of(const State& state, const FrontierDim& dim) const {
  const SizeFacts& facts = sizes_[dim.extent];
  const CoordinateNode& node = pool_[dim.coordinate];
  const Kind kind = node.kind;
  const bool shared = (dim.shared & ~state.data) != 0;
  // A further input reads it, or may yet.
  const bool read = dim.shared != 0 && !shared;
  const bool data = read || further_->missing(state) != 0;
  const bool data_below = data || (dim.history & state.data) != 0;
  const bool affordable = within(facts.primary, state.left);
  const bool second = affordable && facts.matchable_again;
  Traits traits = 0;
  const auto set = [&](Trait trait, bool value) {
    if (value) traits = traits | trait;
  };
  const bool matched = affordable && facts.matchable;
  if (kind == Kind::Reduce) {
    set(shared ? Trait::Match : Trait::MatchShared, second);
    set(Trait::Match, !shared && data && matched);
  } else if (kind == Kind::Output || kind == Kind::MergeMajor || kind == Kind::MergeMinor) {
    set(Trait::Match, matched);
    set(Trait::Repeat, kind != Kind::Output);
  }
  const bool bare_reduce = kind == Kind::Reduce && dim.shared == 0;
  set(Trait::SmallMerge, kind == Kind::Shift && dim.shared == 0);
  set(Trait::Merge, freedom_.merges || (data && !shared) ||
                        !(kind == Kind::Reduce || kind == Kind::Split || kind == Kind::MergeMajor ||
                          kind == Kind::Shift || shared));
  const bool wide_split =
      kind == Kind::Split && sizes_[pool_[node.b].extent].greatest > spec_.thresholds.shift_ratio;
  set(Trait::Shift,
      freedom_.shifts || (data_below && !shared) ||
          !(kind == Kind::Reduce || kind == Kind::Shift || shared || node.unordered || wide_split));
  const bool narrow = facts.coefficient && (facts.odd || freedom_.even_windows);
  set(bare_reduce ? Trait::WindowShared : Trait::Window, narrow);
  // Windows that do not fit into a block slide over what the Split joins.
  const bool wide_block = kind == Kind::Split && sizes_[pool_[node.b].extent].least >= sizes_.widest_window();
  const bool slides = !((wide_block || kind == Kind::Shift) && dim.shared == 0);
  set(slides ? Trait::Slide : Trait::SlideShared, true);
  set(Trait::Sums, !data_below && only_reduces(pool_, dim.coordinate));
  set(Trait::Indexed, dim.history != 0);
  set(Trait::Bare, kind == Kind::Reduce);
  set(Trait::Gaps, dim.gaps);
  set(Trait::Unordered, node.unordered && !data_below);
  return traits;
}

Engine::Pieces Engine::pieces_of(const State& state) const {
  Pieces pieces;
  for (std::size_t k = 0; k < state.dim_count; ++k)
    pieces[k] = {state.dims[k].extent, traits_of(state, state.dims[k])};
  return pieces;
}

Remaining Engine::remaining_of(const State& state, bool more_reduces) const {
  const Budgets& budgets = spec_.budgets;
  Remaining remaining;
  remaining.merges = open_count(state.used[index(P::Merge)], budgets.max_merges);
  remaining.splits = open_count(state.used[index(P::Split)], budgets.max_splits);
  remaining.unfolds = open_count(state.used[index(P::Unfold)], budgets.max_unfolds);
  remaining.shifts = open_count(state.used[index(P::Shift)], budgets.max_shifts);
  remaining.strides = open_count(state.used[index(P::Stride)], budgets.max_strides);
  remaining.expands = open_count(state.used[index(P::Expand)], budgets.max_expands);
  remaining.contractions = weights_left(state);
  remaining.reduces = more_reduces && reduces_open(state) ? budgets.max_reductions - state.step_count : 0;
  remaining.must_contract = further_->missing(state) == 0 && must_contract(state);
  for (std::size_t i = 0; i < spec_.occurrences.size(); ++i) {
    remaining.left[i] = state.left[i];
    if (sizes_.primary_lanes().exponent(i) != 0 && state.left[i] <= 0) remaining.frozen.set(i, -1);
  }
  return remaining;
}

int Engine::distance(const State& state, int limit, bool more_reduces) {
  const Pieces pieces = pieces_of(state);
  const std::span<const Piece> frontier{pieces.data(), state.dim_count};
  const Remaining remaining = remaining_of(state, more_reduces);
  const std::uint8_t missing = further_->missing(state);
  if (missing != 0) return further_->distance(missing, frontier, remaining, limit);
  return (*distance_)(frontier, remaining, limit);
}

bool Engine::within_distance(const State& state, int limit, bool more_reduces) {
  const Pieces pieces = pieces_of(state);
  const std::span<const Piece> frontier{pieces.data(), state.dim_count};
  const Remaining remaining = remaining_of(state, more_reduces);
  const std::uint8_t missing = further_->missing(state);
  if (missing != 0) return further_->within(missing, frontier, remaining, limit);
  return distance_->within(frontier, remaining, limit);
}

Reason Engine::take(const State& state, const Move& move, int steps_left, State& next) {
  interruption_point();
  ++counters.children;
  const auto reject = [&](Reason reason) {
    ++counters.rejected[reason];
    return reason;
  };
  if (!in_order(state, move, letter_key(state, move))) return reject(reason_of(Limit::Order));
  if (const Reason reason = judge(state, move); reason != kAccepted) return reject(reason);
  if (move.primitive == P::Contraction) {
    if (const Reason reason = check_contraction(state, move); reason != kAccepted) return reject(reason);
  }
  if (move.primitive == P::Reduce && !within_reduction_ratio(state, move.parameter))
    return reject(reason_of(Limit::ReductionRatio));
  apply(state, move, next);
  if (const Reason reason = check_budgets(next, move); reason != kAccepted) return reject(reason);
  if (use_distance && !within_distance(next, steps_left)) return reject(reason_of(Limit::Distance));
  const bool enlarges = move.primitive == P::Contraction || move.primitive == P::Unfold;
  if (enlarges && spec_.budgets.max_flops < kUnbounded &&
      work_->least_flops(next, pool_, largest_stride_) > spec_.budgets.max_flops) {
    return reject(reason_of(Limit::Flops));
  }
  ++counters.states;
  return kAccepted;
}

Reason Engine::check_alone(const State& state, const Move& move) {
  std::vector<Move> all;
  moves(state, all);
  const bool counted = move.primitive == P::Reduce
                           ? state.used[index(P::Reduce)] < spec_.budgets.max_reductions &&
                                 within(sizes_[move.parameter].magnitude, state.left)
                           : std::find(all.begin(), all.end(), move) != all.end();
  if (!counted) return reason_of(Limit::Occurrences);
  if (const Reason reason = judge(state, move); reason != kAccepted) return reason;
  if (move.primitive == P::Contraction) {
    if (const Reason reason = check_contraction(state, move); reason != kAccepted) return reason;
  }
  if (move.primitive == P::Reduce && !within_reduction_ratio(state, move.parameter))
    return reason_of(Limit::ReductionRatio);
  State next;
  apply(state, move, next);
  if (const Reason reason = check_budgets(next, move); reason != kAccepted) return reason;
  const bool enlarges = move.primitive == P::Contraction || move.primitive == P::Unfold;
  if (enlarges && spec_.budgets.max_flops < kUnbounded &&
      work_->least_flops(next, pool_, largest_stride_) > spec_.budgets.max_flops) {
    return reason_of(Limit::Flops);
  }
  return kAccepted;
}

std::size_t Engine::bytes() const {
  return sizes_.bytes() + pool_.bytes() + distance_->bytes() + further_->bytes();
}

bool Engine::finished(const State& state) const {
  if (state.dim_count != wanted_sorted_.size() || further_->missing(state) != 0) return false;
  std::array<SizeNumber, kMaxFrontier> extents{};
  for (std::size_t k = 0; k < state.dim_count; ++k) extents[k] = state.dims[k].extent;
  std::sort(extents.begin(), extents.begin() + state.dim_count);
  return std::equal(wanted_sorted_.begin(), wanted_sorted_.end(), extents.begin());
}

}  // namespace syno::synth
