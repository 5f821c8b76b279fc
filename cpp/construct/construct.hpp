// construct/construct.hpp — the parts the default schedule is constructed from. Strategies propose tilings of
// one scope (construct/tiling.hpp); which one is written is decided by a count of cycles.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "construct/analysis.hpp"
#include "construct/written.hpp"
#include "schedule/decisions.hpp"

namespace syno::construct {

/// Of arguments that are not row-major, by name, in elements.
using Strides = std::map<std::string, std::vector<std::int64_t>>;

/// Scopes computed tile by tile of the last one of them (construct/tiled_fusion.hpp).
struct TiledFusion {
  std::string last;
  /// Of its traversal, outermost first: the iterators that are cut into tiles, and elements of a tile.
  std::vector<std::pair<std::string, std::int64_t>> tiles;
  double repeated = 1;  ///< work over work without tiles that may be done for a scope
  bool operator==(const TiledFusion&) const = default;
};
using TiledFusions = std::vector<TiledFusion>;

/// The innermost loop over tiles of a scope, inside which others are computed.
struct TileLoop {
  std::string scope, loop;
  double repeated = 1;
};

/// The outer and the inner loop of a split.
using Parts = std::pair<std::string, std::string>;

/// A plan together with the trace that led to it.
struct Construction {
  Construction(const program::Program& concrete, Dtype dtype, const Target& machine,
               std::vector<std::string> constants = {}, const Strides& strides = {});

  Plan plan;
  Schedule schedule;
  Target target;
  std::int64_t lanes = 1;              ///< of a vector of the dtype computed in
  std::vector<std::string> constants;  ///< inputs whose copies are made before calls
  std::vector<TileLoop> tile_loops;    ///< made by now
  bool separable = false;  ///< something in it is computed by its place in a block: Phases can be either
  bool movable = false;    ///< an intermediate result may lie otherwise: so can Innermost
  /// Shared by all copies; none: everything is found out anew, with the same result.
  std::shared_ptr<WrittenScopes> known = std::make_shared<WrittenScopes>();

  // What decides says why not where it does not apply: of one decision, nothing is left then; of several,
  // those before, which a Draft takes back.
  [[nodiscard]] Refused add(Decision decision);
  OrRefusal<Parts> split(const std::string& scope, const std::string& loop, std::int64_t factor);
  /// Refused where may_fuse() says no.
  OrRefusal<std::string> fuse(const std::string& scope, const std::string& a, const std::string& b);
  /// Not where the inner loop ends where a call's sizes say: iterations would not follow each other then.
  bool may_fuse(const std::string& scope, const std::string& a, const std::string& b) const;
  /// The splits an analysis found useful, on a scope with these loops (or the traversal of such a scope).
  [[nodiscard]] Refused apply(const std::string& scope, const Splits& splits);
  bool constant(program::TensorId tensor) const;
  /// Stages one read of a scope; the name of the copy.
  OrRefusal<std::string> stage_read(const std::string& scope, const ReadFacts& read,
                                    const std::string& suffix);
  /// Prepacks a finished copy of a constant.
  [[nodiscard]] Refused prepack(const std::string& copy, program::TensorId source);
  /// The names of a scope's loops, outermost first; its domain is derived where it is not known yet.
  std::vector<std::string> leaves(const std::string& scope);
  std::int64_t extent(const std::string& scope, const std::string& loop) const;
  std::size_t index(const std::string& scope) const { return plan.scope_named(scope); }
  /// Cuts the range of a loop into nests of their own, at `cuts` and before an incomplete last iteration.
  [[nodiscard]] Refused peel(const std::string& scope, const std::string& loop,
                             std::vector<std::int64_t> cuts, bool incomplete);
  /// The outermost loop that a loop was cut into; itself where it was not.
  std::string outermost_part(const std::string& scope, const std::string& loop) const;
  /// Peels what is incomplete at the end of a loop over tiles, or of the blocks that it was cut into.
  [[nodiscard]] Refused peel_rest(const std::string& scope, const std::string& loop);
  /// The same for those of these loops that were cut.
  [[nodiscard]] Refused peel_blocks(const std::string& scope, const std::vector<std::string>& loops);
  /// Peels the outer loop of a split: an incomplete last iteration, and those in which lanes along the inner
  /// loop wrap around.
  [[nodiscard]] Refused peel_lanes(const std::string& scope, const std::string& outer,
                                   const std::string& inner, bool incomplete) {
    return peel(scope, outer, wrap_cuts(plan, index(scope), outer, inner), incomplete);
  }
  /// Splits the innermost loop into vectors, its rest peeled.
  [[nodiscard]] Refused vectorize_innermost(const std::string& scope);
  /// The same for a copy; where what it reads is contiguous along another loop, both become blocks that are
  /// transposed in registers. Its loops are in the order they are written in. `read`: the loop that what it
  /// reads will be contiguous along, where its layout is still to come.
  [[nodiscard]] Refused vectorize_copy(const std::string& scope, std::string read = {});
  /// Blocks that are transposed in registers: all that is read is contiguous along the loop `read`, or stays.
  [[nodiscard]] Refused vectorize_across(const std::string& scope, const std::string& read);
  /// Makes the outermost loop that has work for several threads parallel, where all of it is worth a thread;
  /// `inside`: iterations of what is computed inside its loops.
  void parallel_outermost(const std::string& scope, std::int64_t inside = 0);
};

/// What is decided while it is open is undone when it ends, unless it is kept: how something is tried.
class Draft {
 public:
  explicit Draft(Construction& c)
      : c_(c), plan_(c.plan), decisions_(c.schedule.trace.size()), tile_loops_(c.tile_loops.size()) {}
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (open_) forget();
  }
  void undo() {  ///< it stays open
    plan_.undo();
    forget();
  }
  void keep() {  ///< ends it
    plan_.keep();
    open_ = false;
  }

 private:
  void forget() {
    c_.schedule.trace.resize(decisions_);
    c_.tile_loops.resize(tile_loops_);
  }
  Construction& c_;
  schedule::Attempt plan_;
  std::size_t decisions_, tile_loops_;
  bool open_ = true;
};

/// Extents of caches' tiles along loops of a scope's facts, flattened ones together; the farthest cache
/// first.
struct CacheTiles {
  std::vector<std::size_t> loops;
  std::vector<std::int64_t> tiles;
  bool operator==(const CacheTiles&) const = default;
};

/// The numbers a sketch leaves open. A sketch reads those it lists in `choices`; the others are ignored.
struct Numbers {
  std::int64_t rows = 1;           ///< of the register tile: broadcast operands
  std::int64_t vectors = 1;        ///< of the register tile: vectors of the operand that is loaded whole
  std::int64_t columns = 1;        ///< of the register tile, where lanes run along the reduction
  std::int64_t chains = 1;         ///< partial sums a result, where lanes run along the reduction
  std::int64_t vectors_outer = 0;  ///< 1: blocks of vectors are the outer loop, blocks of rows the inner one
  std::int64_t packed = 0;         ///< 1: panels of a contiguous operand are copied into a block's order
  std::int64_t steps = 0;          ///< of the reduction, in a part whose operands stay near; 0: all of them
  std::vector<CacheTiles> blocks;  ///< loops outside the register tile go round tiles of caches; or none
  bool operator==(const Numbers&) const = default;
};

/// One number of a sketch and the values that make sense for it, ascending.
struct Choice {
  std::string_view name;
  std::int64_t Numbers::* number;
  std::vector<std::int64_t> values;
  std::vector<std::size_t> loops;  ///< of the scope's facts, that the number tiles, outermost first; or none
};

struct Tiling;  // construct/tiling.hpp
using Facts = std::shared_ptr<const ScopeFacts>;

/// What a tiling takes by count, in cycles of a core that starts one multiply-add in each.
struct CycleCount {
  double computing = 0;  ///< with every operand in the first cache
  double copying = 0;    ///< operands and results, and sums that are kept between parts
  double moving = 0;     ///< lines from the second cache and from beyond it
  double waiting = 0;    ///< for lines of the second cache in short pieces, which nothing hides
  double cycles = 0;     ///< all of it: computing hides most of what moves
};

/// A way to schedule one reduction: a tiling without its numbers. What policies choose among.
struct Sketch {
  std::string name;  ///< of the strategy and of what distinguishes this one: `along_output/2`
  std::string scope;
  Facts facts;  ///< of that scope: what the loops of the tiling are
  std::vector<Choice> choices;
  /// Loops of the facts along which it can be cut into caches' tiles, flattened ones together; or none.
  std::vector<std::vector<std::size_t>> blocks;
  Numbers counted;                               ///< the numbers with the fewest cycles by count
  double cycles = 0;                             ///< with those numbers; infinite: none can be built
  std::function<bool(const Numbers&)> fits;      ///< registers hold a tile of these numbers
  std::function<Tiling(const Numbers&)> tiling;  ///< the whole of it with these numbers
  bool restructured = false;                     ///< which terms a tile repeats depends on its numbers
  /// Cycles by count of the whole scope with these numbers (construct/tiling_cost.hpp); infinite where they
  /// cannot be built.
  CycleCount count(const Numbers& numbers) const;
  double estimate(const Numbers& numbers) const { return count(numbers).cycles; }
  Target target;           ///< what it is counted for
  std::int64_t lanes = 1;  ///< of its vectors
  /// Writes it: decisions about the scope. Says why not where a combination is not allowed.
  [[nodiscard]] Refused write(Construction& c, const Numbers& numbers) const;
};
using Sketches = std::vector<Sketch>;
std::vector<std::int64_t> counting_to(std::int64_t last);  ///< 1, 2, ..., last

/// A loop of a scope before its tiles are split off, and the loops of the facts it is.
struct BaseLoop {
  std::string name;
  std::vector<std::size_t> loops;
};
/// Cuts the first so many loops of an order, those outside the register tile, into the tiles of caches, and
/// puts them in order: a loop over tiles of the farthest cache is outside all within them.
[[nodiscard]] Refused cut_into_blocks(Construction& c, const std::string& scope,
                                      const std::vector<BaseLoop>& bases,
                                      const std::vector<CacheTiles>& blocks, std::vector<std::string>& order,
                                      std::size_t outside);
/// Says that a sketch can be cut along the first so many loops of results, and along those of sums where the
/// output can keep what is summed so far.
void add_blocks(const Construction& c, const ScopeFacts& facts, std::size_t results, Sketch& sketch);
/// The greatest divisor up to `most`, unless it is less than half of that: then `most`.
std::int64_t even_part(std::int64_t extent, std::int64_t most);

/// Cycles that a vector of results costs for each further part of its reduction: it is kept between them.
inline constexpr double kKeptCycles = 4;
/// Cycles of so many vectors of results for so many parts, where `inside` of them are made by a part in turn:
/// those that do not stay in the second cache come from beyond it, and go back there.
double kept_cycles(const Target& target, double vectors, double inside, double parts);

/// Cycles by count, over those without it, with which a sum is cut: kept sums take longer than is counted (on
/// a Zen 4 with AVX2, products cut in two or four took up to 1.1 times what they do whole).
inline constexpr double kWorthCutting = 0.98;

/// Whether each step of the sum reads from another page, which no prefetcher foresees.
bool steps_far_apart(const Construction& c, const ScopeFacts& facts, const ReadFacts& read);
/// Steps that a part of a reduction may have, 0 first: all of them.
std::vector<std::int64_t> steps_of_parts(const Construction& c, const ScopeFacts& facts);
/// How many iterations of each loop of a reduction, outermost first, a part of so many steps takes; 0: all.
std::vector<std::int64_t> iterations_of_part(std::vector<std::int64_t> extents, std::int64_t steps);
/// Splits the loops of a reduction, outermost first, so that those inside take about so many steps.
struct ReductionLoops {
  std::vector<std::string> around, inside;
  std::string incomplete;  ///< of those around: the one whose last iteration is incomplete, if any
};
OrRefusal<ReductionLoops> in_parts(Construction& c, const std::string& scope,
                                   const std::vector<std::string>& loops, std::int64_t steps);
/// Puts those around into an order of loops of results, behind so many of them and one for several threads.
void put_around(const Construction& c, const std::string& scope, std::vector<std::string>& order,
                std::size_t behind, const ReductionLoops& reduction);
/// The choice of these steps, where there is one.
void add_parts(const ScopeFacts& facts, const std::vector<std::int64_t>& steps, Sketch& sketch);

// The strategies: each adds the tilings it proposes for a scope about which nothing was decided yet; `facts`
// are analyse()'s.
/// Vectors along the innermost dimensions of the output (pixels), which are flattened where that fills
/// vectors.
void along_output(Construction& c, const std::string& scope, const Facts& facts, Sketches& sketches);
/// Vectors along another dimension of the output (channels), its operand packed and its result transposed.
void along_channels(Construction& c, const std::string& scope, const Facts& facts, Sketches& sketches);
/// Vectors along a reduction, as in dot products.
void along_reduction(Construction& c, const std::string& scope, const Facts& facts, Sketches& sketches);
/// Vectors along the innermost dimension of the output, windows of few taps read where they lie.
void along_window(Construction& c, const std::string& scope, const Facts& facts, Sketches& sketches);
/// Vectors along consecutive positions of a small image, windows read where they lie, lanes outside masked.
void along_image(Construction& c, const std::string& scope, const Facts& facts, Sketches& sketches);
/// Vectors along positions that all operands have, such as weights that differ from place to place.
void along_places(Construction& c, const std::string& scope, const Facts& facts, Sketches& sketches);

/// analyse()'s, of a scope about which nothing was decided yet, to be shared by its sketches.
Facts facts_of(Construction& c, const std::string& scope, bool blocks = true);
/// Every sketch of a scope that reduces; none for others, which have one way to be written.
Sketches sketches_of(Construction& c, const std::string& scope);
Sketches sketches_of(Construction& c, const std::string& scope, const Facts& facts);

/// The innermost loop of its consumers inside which a scope can be computed piece by piece without repeating
/// work, and without becoming slower by count, or else the tile of a fusion: a compute_at. Its consumers'
/// loops are decided already. Places are tried, and nothing is left of that.
std::optional<Decision> placement(Construction& c, const std::string& scope);

/// Puts a copy of what `scope` reads where `scope` itself is computed piece by piece, unless pieces would
/// repeat work.
[[nodiscard]] Refused place_beside(Construction& c, const std::string& copy, const std::string& scope);

/// A copy of a read that is contiguous along the innermost iterators of a traversal, flattened there.
struct RowCopy {
  std::vector<std::size_t> dims;      ///< the dimension each of these iterators moves
  std::vector<std::int64_t> strides;  ///< and by how much
};
/// The copy for so many iterators; none where one of them moves several dimensions, or backwards.
std::optional<RowCopy> plan_row_copy(const ScopeFacts& facts, const ReadFacts& read, std::size_t flattened);
/// Lays a staged copy out so, all of it or by panels of `width` elements, and writes its loops. `pitch`: the
/// extent each of the iterators runs over.
[[nodiscard]] Refused write_row_copy(Construction& c, const std::string& copy, const RowCopy& read,
                                     const std::vector<std::int64_t>& pitch, std::int64_t width = 0);
/// How many of the outermost loops, at most `before`, may have a copy of the read each without any element
/// being in two of them; 0 where they have one iteration together.
std::size_t own_depth(const ScopeFacts& facts, const ReadFacts& read, std::size_t before);

/// Writes the loops of an element-wise scope that reads some tensors along its rows and others across them;
/// false where it does not, nothing written.
OrRefusal<bool> write_across(Construction& c, const std::string& scope);

/// How a copy is cut along one dimension: into parts of that many elements, where it has several, and each of
/// them into blocks.
struct Blocks {
  std::size_t dim = 0;
  std::int64_t part = 0, width = 1;
  std::size_t outside = 0;  ///< so many of the reader's loops stand around the one over blocks
};
/// Lays a copy of a read of `reader` out as [parts][blocks][other dimensions][a block], the last block of a
/// part padded, and writes its loops. The other dimensions follow each other as the loops that move them do,
/// which are given from the outermost on; those before the blocks that only loops around these move, so that
/// what is read one after the other lies so. One of which inner loops take every second element, say, and an
/// outer loop chooses which (as taps of a transposed convolution), is two: what is taken together lies so.
[[nodiscard]] Refused write_blocks(Construction& c, const std::string& copy, const Blocks& blocks,
                                   const ReadFacts& read, const std::vector<std::size_t>& loops,
                                   const std::string& reader);

/// Lays a copy out with its dimensions in this order, outermost first, and writes its loops.
[[nodiscard]] Refused write_permuted(Construction& c, const std::string& copy,
                                     const std::vector<std::int64_t>& permutation);

/// Has a finished scope ask ahead for what it reads from, or writes to, beyond the second cache.
[[nodiscard]] Refused prefetch_far(Construction& c, const std::string& scope);

/// Inlines scopes without a reduction where that repeats little work: every consumer uses an element about
/// once, or it is cheap and few do.
void inline_cheap_scopes(Construction& c);

/// Whether computing a scalar takes many instructions: it calls an elementary function or divides.
bool expensive(const program::Program& program, program::ScalarId scalar);

/// What a policy answers for one scope: which sketch, and with which numbers.
struct Choosing {
  std::size_t sketch = 0;
  Numbers numbers;
  bool operator==(const Choosing&) const = default;
};
/// Asked once a reducing scope with sketches, consumers first. Must depend on its arguments only.
using Policy = std::function<Choosing(const Construction&, const std::string& scope, const Sketches&)>;
/// The fewest cycles by count.
Choosing fewest_cycles(const Construction& c, const std::string& scope, const Sketches& sketches);

/// A whole schedule and the nest it makes; that of a call, where copies of constants are made before.
struct Finished {
  Schedule schedule;
  LoopNest nest;
  bool separable = false;  ///< as Construction has it
};
/// What is computed by its place in a block, as a strided transposed convolution is: place by place where it
/// lies, or as channels of its own that are put in their places by a copy (decision `polyphase`).
enum class Phases : std::uint8_t { Together, Apart };
/// Intermediate results that are read at `t[c,4*w+a]`: as the program has them, or with a dimension innermost
/// that readers move along step by step, here c, so that vectors need no gathers (decision `innermost`).
enum class Innermost : std::uint8_t { AsGiven, Moved };
/// What a chooser is asked: how to write one scope, whose consumers are decided.
struct Question {
  const Construction& construction;
  const std::string& scope;
  const ScopeFacts& facts;
  const Sketches& sketches;
  /// The construction to its end, this scope as the answer says and those after it as fewest_cycles() does;
  /// nothing where that cannot be built. What was decided before is not decided again.
  std::function<std::optional<Finished>(const Choosing&)> finish;
};
/// As a policy, but it may look at where answers lead. When not even the counted schedule can be built with
/// the stages computed piece by piece, all scopes are asked about a second time, whole stages in view.
using Chooser = std::function<Choosing(const Question&)>;

/// A good schedule for any program without measuring: register tiles over two of the parallel iterators,
/// vectors along the one that makes accesses contiguous, padded and packed operands staged, stages fused
/// where they fit a cache, the outermost loops parallel. Depends on program, dtype and target only. Copies of
/// `constants`, names of inputs, are prepacked: they cost nothing, so more of them are worth it.
Schedule default_schedule(const program::Program& concrete, Dtype dtype, const Target& target,
                          const std::vector<std::string>& constants = {});

/// The schedule of a whole program, its reductions as the policy says. Where a choice cannot be built, that
/// scope is written as fewest_cycles() says, and plainly where that cannot be built either.
Schedule construct(const program::Program& concrete, Dtype dtype, const Target& target, const Policy& policy,
                   const std::vector<std::string>& constants = {}, const Strides& strides = {});
Finished construct_with(const program::Program& concrete, Dtype dtype, const Target& target,
                        const Chooser& chooser, const std::vector<std::string>& constants = {},
                        const Strides& strides = {}, Phases phases = Phases::Together,
                        const TiledFusions& fusions = {}, Innermost innermost = Innermost::AsGiven);
/// The same of what is prepared() already.
Finished construct_from(const Construction& prepared, const Chooser& chooser,
                        const TiledFusions& fusions = {});
/// As fewest_cycles() says.
Finished construct_counted(const Construction& prepared, const TiledFusions& fusions = {});
/// The same for one who looks at it and takes another: its nest is not verified.
Finished counted_unverified(const Construction& prepared, const TiledFusions& fusions = {});
/// The construction before loops are decided: what is cheap inlined, sums solved, epilogues fused.
Construction prepared(const program::Program& concrete, Dtype dtype, const Target& target,
                      const std::vector<std::string>& constants, const Strides& strides, Phases phases,
                      Innermost innermost = Innermost::AsGiven);

}  // namespace syno::construct
