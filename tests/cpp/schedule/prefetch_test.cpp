// Asking for memory ahead: what a tile reads next has been asked for, and the meaning stays.
#include "schedule/prefetch.hpp"

#include <gtest/gtest.h>

#include <set>

#include "construct/construct.hpp"
#include "fixture.hpp"
#include "schedule/live.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

/// Runs a nest's loops and notes, in order, which lines of one buffer it asks for, reads and writes.
class Lines {
 public:
  Lines(const LoopNest& nest, std::string_view buffer) : nest_(nest), variables_(nest.next_slot) {
    while (index_ < nest.buffers.size() && nest.buffers[index_].name != buffer) ++index_;
    if (index_ < nest.buffers.size()) run(nest.root);
  }
  std::int64_t asked = 0, first_reads = 0, in_time = 0;
  std::int64_t first_touches() const { return static_cast<std::int64_t>(touched_.size()); }
  std::int64_t lines_asked() const { return static_cast<std::int64_t>(on_their_way_.size()); }

 private:
  std::int64_t integer(ExprId e) const { return *symbolic::evaluate(nest_.arena, e, sizes_, 0, variables_); }
  std::int64_t line(const std::vector<ExprId>& indices) const {
    const Buffer& buffer = nest_.buffers[index_];
    std::int64_t at = 0;
    for (std::size_t d = 0; d < indices.size(); ++d) at += integer(indices[d]) * buffer.strides[d];
    return at * static_cast<std::int64_t>(byte_size(buffer.dtype)) / 64;
  }
  bool touch(std::int64_t at) {
    if (!touched_.insert(at).second) return false;
    in_time += on_their_way_.contains(at);
    return true;
  }
  void value(ValueId id) {
    const Value& made = nest_.value(id);
    if (made.kind == ValueKind::Load && static_cast<std::size_t>(made.buffer) == index_) {
      first_reads += touch(line(made.indices));
    }
    if (made.kind == ValueKind::Unary || made.kind == ValueKind::Binary) value(made.a);
    if (made.kind == ValueKind::Binary) value(made.b);
  }
  void run(StatementId id) {
    const Statement& statement = nest_.statement(id);
    if (statement.kind == StatementKind::Store) {
      value(statement.value);
      if (static_cast<std::size_t>(statement.buffer) == index_) touch(line(statement.indices));
    }
    if (statement.kind == StatementKind::Prefetch && static_cast<std::size_t>(statement.buffer) == index_) {
      ++asked;
      on_their_way_.insert(line(statement.indices));
    }
    if (statement.kind == StatementKind::If)
      for (const nest::Condition& clause : statement.conditions) {
        const std::int64_t now = integer(clause.expr);
        if (now < clause.begin || now >= clause.end) return;
      }
    if (statement.kind != StatementKind::For) {
      for (const StatementId child : statement.children) run(child);
      return;
    }
    for (std::int64_t i = integer(statement.begin); i < integer(statement.end); ++i) {
      variables_[statement.slot] = i;
      run(statement.children[0]);
    }
  }

  const LoopNest& nest_;
  const symbolic::Sizes sizes_;
  std::vector<std::int64_t> variables_;
  std::size_t index_ = 0;
  std::set<std::int64_t> touched_, on_their_way_;
};

struct PrefetchCase {
  const char* name;
  const char* text;
  std::map<std::string, std::int64_t, std::less<>> sizes;
  const char* far;  ///< what is read from beyond the second cache
  double in_time;   ///< part of its lines that have been asked for before they are read
  std::vector<std::string> constants;
  const char* sketch = nullptr;  ///< that reads it so, in tiles of 8 x 32; none: what counts least
};
void PrintTo(const PrefetchCase& c, std::ostream* out) { *out << c.name; }

class Prefetch : public ::testing::TestWithParam<PrefetchCase> {
 protected:
  /// A machine whose second cache is small, so that small programs reach beyond it.
  static Target small_caches() {
    Target target;
    target.l1_bytes = 2 << 10;
    target.l2_bytes = 16 << 10;
    target.l3_bytes = 1 << 20;
    return target;
  }
};

TEST_P(Prefetch, HasAskedForWhatItReads) {
  const auto p = program::parse(GetParam().text, {.sizes = GetParam().sizes});
  const char* wanted = GetParam().sketch;
  const construct::Policy policy = [&](const construct::Construction& c, const std::string& scope,
                                       const construct::Sketches& sketches) {
    for (std::size_t i = 0; wanted != nullptr && i < sketches.size(); ++i)
      if (sketches[i].name == wanted) return construct::Choosing{i, {.rows = 8, .vectors = 2}};
    return construct::fewest_cycles(c, scope, sketches);
  };
  const Schedule schedule = construct::construct(p, Dtype::F32, small_caches(), policy, GetParam().constants);
  const auto parts = apply_prepacked(p, schedule);
  const LoopNest nest = parts ? parts->call : apply(p, schedule);
  const Lines lines(nest, GetParam().far);
  ASSERT_GT(lines.first_reads, 0) << to_text(schedule) << to_text(nest);
  EXPECT_GE(static_cast<double>(lines.in_time), GetParam().in_time * static_cast<double>(lines.first_reads))
      << lines.first_reads << " lines, " << lines.in_time << " in time\n"
      << to_text(schedule) << to_text(nest);
}

TEST_P(Prefetch, KeepsTheMeaningAtAnySize) {
  Random random(67);
  for (int trial = 0; trial < 3; ++trial) {
    program::ParseOptions options;
    for (const auto& [name, size] : GetParam().sizes)
      options.sizes.emplace(name, size <= 3 ? size : draw(random, size / 4, size / 2));
    const auto p = program::parse(GetParam().text, options);
    Target target = small_caches();
    target.l2_bytes = 256;
    constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::BF16};
    const Schedule schedule = default_schedule(p, kDtypes[trial], target, GetParam().constants);
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
    EXPECT_EQ(to_text(parse_loop_nest(to_text(nest))), to_text(nest));
    expect_same(p, nest, random_arguments(p, random), to_text(schedule));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, Prefetch,
    ::testing::Values(PrefetchCase{"rows_of_a_batch",
                                   "y[b,i,j] = sum[k] a[b,i,k] * c[b,k,j]",
                                   {{"b", 6}, {"i", 64}, {"j", 32}, {"k", 64}},
                                   "a",
                                   0.7,
                                   {}},
                      PrefetchCase{"small_operand_of_a_batch",
                                   "y[b,i,j] = sum[k] a[b,i,k] * c[b,k,j]",
                                   {{"b", 12}, {"i", 64}, {"j", 32}, {"k", 32}},
                                   "c",
                                   0.85,
                                   {}},
                      PrefetchCase{"pieces_of_rows",
                                   "y[m,n] = sum[k] a[m,k] * b[k,n]",
                                   {{"m", 28}, {"n", 560}, {"k", 64}},
                                   "b",
                                   0.7,
                                   {}},
                      PrefetchCase{"packed_panels",
                                   "y[m,n] = sum[k] a[m,k] * b[k,n]",
                                   {{"m", 60}, {"n", 640}, {"k", 160}},
                                   "b_pack",
                                   0.7,
                                   {"b"}},
                      PrefetchCase{"pieces_for_few_rows",
                                   "y[m,n] = sum[k] a[m,k] * b[k,n]",
                                   {{"m", 14}, {"n", 640}, {"k", 160}},
                                   "b",
                                   0.9,
                                   {}},
                      PrefetchCase{"pieces_for_each_of_a_batch",
                                   "y[p,m,n] = sum[k] a[p,m,k] * b[p,n,k]",
                                   {{"p", 4}, {"m", 16}, {"n", 256}, {"k", 128}},
                                   "b_pad",
                                   0.85,
                                   {"b"},
                                   "along_output/1"},
                      PrefetchCase{"stream_of_few_places",
                                   "y[o,h,w] = sum[c] x[c,h,w] * k[o,c]",
                                   {{"o", 320}, {"h", 2}, {"w", 6}, {"c", 160}},
                                   "k_pack",
                                   0.95,
                                   {"k"}},
                      PrefetchCase{"packed_weights_of_a_convolution",
                                   "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
                                   {{"n", 1}, {"o", 128}, {"h", 7}, {"w", 7}, {"c", 32}, {"r", 3}, {"s", 3}},
                                   "k_pack",
                                   0.6,
                                   {"k"}}),
    [](const auto& info) { return std::string(info.param.name); });

/// Code for 5 to 18 rows: the call of five asks for all of the next panel, the one of eighteen not again and
/// again. The lines of a panel are no power of two.
TEST(PrefetchOfARange, AsksWithinTheStepsOfItsShortestCall) {
  for (const std::int64_t channels : {32, 48}) {
    const auto at = [&](std::int64_t rows) {
      return program::parse(
          "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
          {.sizes = {{"n", 1}, {"o", 128}, {"h", rows}, {"w", 9}, {"c", channels}, {"r", 3}, {"s", 3}}});
    };
    Target target;
    target.l1_bytes = 8 << 10;
    target.l2_bytes = 16 << 10;
    target.l3_bytes = 1 << 20;
    const auto p = at(18);
    const Schedule schedule = default_schedule(p, Dtype::F32, target, {"k"});
    ASSERT_NE(to_text(schedule).find("prefetch"), std::string::npos) << to_text(schedule);
    const auto live = with_live_ends({{{18}, p}, {{17}, at(17)}, {{11}, at(11)}, {{5}, at(5)}}, {"h"});
    const auto parts = apply_prepacked(live, schedule, {{"h", 0, 5, 18}});
    ASSERT_TRUE(parts);
    for (const std::int64_t rows : {5, 11, 18}) {
      const LoopNest nest = nest::specialised(parts->call, {rows});
      const Lines lines(nest, "k_pack");
      EXPECT_GE(static_cast<double>(lines.in_time), 0.6 * static_cast<double>(lines.first_reads))
          << rows << " rows: " << lines.first_reads << " lines, " << lines.in_time << " in time\n"
          << to_text(nest);
      EXPECT_LE(lines.asked, 2 * lines.first_reads) << rows << " rows\n" << to_text(nest);
    }
  }
}

/// Tiles of rows that each are code of their own, as borders leave out other terms in each: the weights that
/// all of them multiply are asked for by all together, each its share.
TEST(PrefetchOfSlices, AskTogetherForWhatTheyReadTogether) {
  struct Small {
    std::int64_t h, w, window, channels, filters, stride;
    double in_time;
    construct::Numbers tile = {};  // along channels; of one row: what counts least
  };
  for (const Small& s :
       {Small{4, 4, 3, 128, 128, 1, 0.9}, Small{3, 4, 2, 32, 128, 2, 0.7}, Small{7, 2, 2, 64, 64, 1, 0.45},
        Small{7, 3, 2, 112, 128, 2, 0.45, {.rows = 6, .vectors = 2, .steps = 32}}}) {
    const auto p = program::parse("y[o,h,w] = sum[c,r,s] x[c,z*h+r-1,z*w+s-1] * k[o,c,r,s]",
                                  {.sizes = {{"o", s.filters},
                                             {"h", s.h},
                                             {"w", s.w},
                                             {"c", s.channels},
                                             {"r", s.window},
                                             {"s", s.window},
                                             {"z", s.stride}}});
    Target target;
    target.l1_bytes = 32 << 10;
    target.l2_bytes = 64 << 10;
    const construct::Policy policy = [&](const construct::Construction& c, const std::string& scope,
                                         const construct::Sketches& sketches) {
      construct::Choosing choice = construct::fewest_cycles(c, scope, sketches);
      for (std::size_t i = 0; s.tile.rows > 1 && i < sketches.size(); ++i)
        if (sketches[i].name == "along_channels/0") choice = {i, s.tile};
      return choice;
    };
    const auto parts = apply_prepacked(p, construct::construct(p, Dtype::F32, target, policy, {"k"}));
    ASSERT_TRUE(parts);
    const Lines lines(parts->call, "k_pack");
    EXPECT_GE(static_cast<double>(lines.in_time), s.in_time * static_cast<double>(lines.first_reads))
        << lines.first_reads << " lines, " << lines.in_time << " in time\n"
        << to_text(parts->call);
    EXPECT_LE(static_cast<double>(lines.asked), 1.25 * static_cast<double>(lines.first_reads))
        << to_text(parts->call);
  }
}

TEST(PrefetchDecision, LeavesMemoryThatStaysNearAlone) {
  const auto p =
      program::parse("y[m,n] = sum[k] a[m,k] * b[k,n]", {.sizes = {{"m", 28}, {"n", 560}, {"k", 64}}});
  const LoopNest nest = apply(p, default_schedule(p, Dtype::F32, Target{}));
  EXPECT_EQ(to_text(nest).find("prefetch"), std::string::npos) << to_text(nest);
}

/// One line an iteration of a loop further out is enough: taps inside ask for nothing.
TEST(PrefetchDecision, AsksAsFarOutAsThereAreStepsEnough) {
  const auto p = program::parse("y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
                                {.sizes = {{"o", 128}, {"h", 28}, {"w", 28}, {"c", 64}, {"r", 3}, {"s", 3}}});
  Target target;
  target.l2_bytes = 256 << 10;
  const std::string nest = to_text(apply_prepacked(p, default_schedule(p, Dtype::F32, target, {"k"}))->call);
  const auto column = [&](std::string_view statement) {
    const std::size_t at = nest.find(statement);
    EXPECT_NE(at, std::string::npos) << statement << "\n" << nest;
    return at - nest.rfind('\n', at);
  };
  EXPECT_EQ(column("prefetch k_pack["), column("for r in")) << nest;
  EXPECT_LT(column("for r in"), column("for s in")) << nest;
}

/// Most of the next window was read with this one: what is new, its last rows, is asked for.
TEST(PrefetchOfWindows, AsksForWhatTheNextWindowDoesNotShare) {
  struct Windows {
    std::int64_t height, width, window, channels;
  };
  for (const Windows& w : {Windows{12, 64, 3, 16}, Windows{9, 64, 2, 32}, Windows{10, 96, 3, 12}}) {
    const auto p =
        program::parse("y[o,h,w] = sum[c,r,s] x[c,h+r,w+s] * k[o,c,r,s]", {.sizes = {{"o", 40},
                                                                                     {"h", w.height},
                                                                                     {"w", w.width},
                                                                                     {"c", w.channels},
                                                                                     {"r", w.window},
                                                                                     {"s", w.window}}});
    Target target;
    target.l1_bytes = 16 << 10;
    target.l2_bytes = 64 << 10;
    const LoopNest nest = apply(p, default_schedule(p, Dtype::F32, target));
    const Lines lines(nest, "x");
    EXPECT_GE(static_cast<double>(lines.in_time), 0.6 * static_cast<double>(lines.first_reads))
        << lines.in_time << " of " << lines.first_reads << "\n"
        << to_text(nest);
    EXPECT_LE(static_cast<double>(lines.lines_asked()), 1.7 * static_cast<double>(lines.first_reads));
  }
}

/// What a tile's sums are finished with and written to lies on as many pages as the tile has rows.
TEST(PrefetchOfResults, AsksForThemWhileSumsAreMade) {
  struct Product {
    const char* text;
    std::map<std::string, std::int64_t, std::less<>> sizes;
  };
  for (const Product& of : {Product{"t[m,n] = sum[k] a[m,k] * b[k,n]; y[m,n] = relu(t[m,n] + z[m,n])",
                                    {{"m", 96}, {"n", 640}, {"k", 64}}},
                            Product{"t[m,p,q] = sum[k] a[m,k] * b[k,p,q]; y[m,p,q] = t[m,p,q] * z[m,p,q]",
                                    {{"m", 96}, {"p", 27}, {"q", 32}, {"k", 64}}},
                            Product{"t[m,n] = sum[k] a[m,k] * b[k,n]; y[m,n] = t[m,n] + z[m,n]",
                                    {{"m", 128}, {"n", 528}, {"k", 96}}}}) {
    const auto p = program::parse(of.text, {.sizes = of.sizes});
    Target target;
    target.l1_bytes = 8 << 10;
    target.l2_bytes = 64 << 10;
    const Schedule schedule = default_schedule(p, Dtype::F32, target);
    const LoopNest nest = apply(p, schedule);
    for (const char* meets : {"z", "y"}) {
      const Lines met(nest, meets);
      EXPECT_GE(static_cast<double>(met.in_time), 0.7 * static_cast<double>(met.first_touches()))
          << meets << ": " << met.in_time << " of " << met.first_touches() << "\n"
          << to_text(schedule) << to_text(nest);
      EXPECT_LE(static_cast<double>(met.lines_asked()), 1.35 * static_cast<double>(met.first_touches()))
          << to_text(nest);
    }
  }
}

/// Rows of a result that follow each other closely are a stream.
TEST(PrefetchOfResults, LeavesRowsThatLieTogetherAlone) {
  const auto p = program::parse("t[m,n] = sum[k] a[m,k] * b[k,n]; y[m,n] = relu(t[m,n] + z[m,n])",
                                {.sizes = {{"m", 600}, {"n", 128}, {"k", 64}}});
  Target target;
  target.l2_bytes = 64 << 10;
  const Schedule schedule = default_schedule(p, Dtype::F32, target);
  const LoopNest nest = apply(p, schedule);
  EXPECT_NE(to_text(schedule).find("tensor=z"), std::string::npos) << to_text(schedule);
  EXPECT_EQ(Lines(nest, "z").asked + Lines(nest, "y").asked, 0) << to_text(nest);
}

/// Lines of rows of nine are found by divisions, in every step.
TEST(PrefetchDecision, LeavesAloneWhatTakesDivisionsToFind) {
  const auto p =
      program::parse("y[o,c,r,s] = sum[n,h,w] d[n,o,h,w] * x[n,c,h+r-1,w+s-1]",
                     {.sizes = {{"o", 64}, {"c", 64}, {"r", 3}, {"s", 3}, {"n", 64}, {"h", 7}, {"w", 7}}});
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  const std::string nest = to_text(apply(p, schedule));
  EXPECT_EQ(nest.find("prefetch x["), std::string::npos) << nest;
  EXPECT_EQ(nest.find("prefetch d["), std::string::npos) << nest;
}

/// What few sums are made of comes as fast as it can, whoever asks for it.
TEST(PrefetchDecision, LeavesStreamsOfOneRowAlone) {
  const auto p = program::parse("y[n] = sum[k] a[k] * b[k,n]", {.sizes = {{"n", 640}, {"k", 2000}}});
  const std::string nest = to_text(apply(p, default_schedule(p, Dtype::F32, Target{}, {"b"})));
  EXPECT_EQ(nest.find("prefetch b"), std::string::npos) << nest;
}

/// Blocks of weights for each of a batch follow each other as they are read.
TEST(PrefetchDecision, FindsPacksInTheOrderOfTheirLoops) {
  const auto p = program::parse("y[p,h,w,o] = sum[c] x[p,h,w,c] * k[p,o,c]",
                                {.sizes = {{"p", 4}, {"h", 4}, {"w", 4}, {"o", 512}, {"c", 512}}});
  const LoopNest nest = apply_prepacked(p, default_schedule(p, Dtype::F32, Target{}, {"k"}))->call;
  const auto pack = std::find_if(nest.buffers.begin(), nest.buffers.end(),
                                 [](const Buffer& buffer) { return buffer.name == "k_pack"; });
  ASSERT_NE(pack, nest.buffers.end()) << to_text(nest);
  EXPECT_EQ(pack->extents.front(), 4) << to_text(nest);
}

TEST(PrefetchDecision, SaysWhatIsWrong) {
  const auto p = program::parse("t[m] = sum[k] a[m,k]; y[m] = t[m] + c[m]", {.sizes = {{"m", 4}, {"k", 64}}});
  const auto refused = [&](std::vector<Decision> trace, const char* reason) {
    try {
      apply(p, {Dtype::F32, std::move(trace)});
      ADD_FAILURE() << "accepted; expected: " << reason;
    } catch (const ScheduleError& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  };
  const Decision good{"prefetch", "t", {}, {64}, "a", {}};
  refused({good, good}, "asks for 'a' ahead already");
  refused({{"prefetch", "t", {}, {64}, "c", {}}}, "'t' does not read 'c'");
  refused({{"prefetch", "t", {}, {}, "a", {}}}, "needs one number");
  refused({{"prefetch", "t", {}, {-1}, "a", {}}}, "at least 0");
}

}  // namespace
}  // namespace syno::schedule
