// one_scope() against the top-down meaning of Table 1: tensors pushed through the primitives from the input
// down.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "lower/lower.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_graph.hpp"

namespace syno {
namespace {

using pgraph::CoordinateId;
using pgraph::Primitive;

/// A tensor whose dimensions are coordinates.
struct Block {
  std::vector<CoordinateId> dims;
  std::vector<double> data;
};
using CoordinatePoint = std::map<CoordinateId, std::int64_t>;

class TopDown {
 public:
  explicit TopDown(const pgraph::CompleteGraph& graph) : graph_(graph.graph) {}

  std::vector<double> run(const pgraph::CompleteGraph& graph,
                          const std::map<std::string, program::Values<double>>& inputs) {
    Block block{graph.input, inputs.at("x").data};
    std::size_t weight = graph_.weights().size();
    for (std::size_t s = graph_.steps().size(); s-- > 0;) {
      const pgraph::Step& step = graph_.steps()[s];
      const auto results = graph_.results_of(s);
      const Block in = block;
      const auto below = [&](std::vector<CoordinateId> gone, std::vector<CoordinateId> come) {
        block.dims.clear();
        for (const auto id : in.dims) {
          if (std::find(gone.begin(), gone.end(), id) == gone.end()) block.dims.push_back(id);
        }
        block.dims.insert(block.dims.end(), come.begin(), come.end());
      };
      const auto fill = [&](const std::function<double(CoordinatePoint)>& value) {
        block.data.clear();
        each(block.dims, [&](const CoordinatePoint& point) { block.data.push_back(value(point)); });
      };
      const auto& ops = step.operands;
      switch (step.primitive) {
        case Primitive::Reduce:
          below(results, {});
          fill([&](CoordinatePoint p) {
            double sum = 0;
            for (p[results[0]] = 0; p[results[0]] < extent(results[0]); ++p[results[0]]) sum += at(in, p);
            return sum;
          });
          break;
        case Primitive::Expand:
          below({}, ops);
          fill([&](const CoordinatePoint& p) { return at(in, p); });
          break;
        case Primitive::Merge:
          below(results, ops);
          fill([&](CoordinatePoint p) {
            const std::int64_t i = p.at(ops[0]), block_size = extent(results[1]);
            p[results[0]] = i / block_size;
            p[results[1]] = i % block_size;
            return at(in, p);
          });
          break;
        case Primitive::Split:
          below(results, ops);
          fill([&](CoordinatePoint p) {
            p[results[0]] = p.at(ops[0]) * extent(ops[1]) + p.at(ops[1]);
            return at(in, p);
          });
          break;
        case Primitive::Shift:
          below(results, ops);
          fill([&](CoordinatePoint p) {
            const std::int64_t n = extent(ops[0]);
            p[results[0]] = ((p.at(ops[0]) + step.amount) % n + n) % n;
            return at(in, p);
          });
          break;
        case Primitive::Stride:
          below(results, ops);
          fill([&](CoordinatePoint p) {
            p[results[0]] = p.at(ops[0]) * step.size.factor().num();
            return at(in, p);
          });
          break;
        case Primitive::Unfold:
          below(results, ops);
          fill([&](CoordinatePoint p) {
            const std::int64_t place = p.at(ops[0]) + p.at(ops[1]) - extent(ops[1]) / 2;
            p[results[0]] = place;
            return place < 0 || place >= extent(results[0]) ? 0.0 : at(in, p);
          });
          break;
        case Primitive::Contraction: {
          if (step.source == 0) --weight;
          const bool data = step.source != 0;
          const std::string name =
              data ? fmt::format("x{}", step.source + 1) : fmt::format("w{}", weight + 1);
          const Block w{data ? graph.further[step.source - 1] : graph_.weights()[weight],
                        inputs.at(name).data};
          below({}, step.matched);
          fill([&](const CoordinatePoint& p) { return at(in, p) * at(w, p); });
          break;
        }
      }
    }
    std::vector<double> y;
    std::vector<CoordinateId> outputs;
    for (std::uint32_t d = 0; d < graph_.signature().output.size(); ++d) outputs.push_back(CoordinateId{d});
    each(outputs, [&](const CoordinatePoint& p) { y.push_back(at(block, p)); });
    return y;
  }

 private:
  std::int64_t extent(CoordinateId id) const { return graph_.coordinate(id).extent.factor().num(); }

  double at(const Block& block, const CoordinatePoint& point) const {
    std::size_t offset = 0;
    for (const auto id : block.dims) {
      offset = offset * static_cast<std::size_t>(extent(id)) + static_cast<std::size_t>(point.at(id));
    }
    return block.data.at(offset);
  }

  void each(const std::vector<CoordinateId>& dims,
            const std::function<void(const CoordinatePoint&)>& visit) const {
    CoordinatePoint point;
    for (const auto id : dims) point[id] = 0;
    for (;;) {
      visit(point);
      std::size_t d = dims.size();
      while (d > 0 && ++point[dims[d - 1]] == extent(dims[d - 1])) point[dims[--d]] = 0;
      if (d == 0) return;
    }
  }

  const pgraph::PGraph& graph_;
};

TEST(OneScope, IsTheTopDownMeaningOfItsPrimitives) {
  std::map<Primitive, int> seen;
  int clipped = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Random random(seed + 1'000'000);
    const pgraph::CompleteGraph graph = test::random_graph(random, 8, 1500);
    const program::Program one = lower::one_scope(graph);
    ASSERT_EQ(one.scopes.size(), 1U);
    for (const auto& step : graph.graph.steps()) ++seen[step.primitive];
    for (const auto& scalar : one.scalars) clipped += scalar.kind == program::ScalarKind::Select;
    const auto inputs = test::random_inputs(one, random);
    ASSERT_EQ(program::interpret(one, inputs).at("y").data, TopDown(graph).run(graph, inputs))
        << seed << "\n"
        << pgraph::to_text(graph) << program::to_text(one);
  }
  for (std::size_t p = 0; p < pgraph::kPrimitiveCount; ++p) {
    EXPECT_GT(seen[static_cast<Primitive>(p)], 100) << pgraph::name_of(static_cast<Primitive>(p));
  }
  EXPECT_GT(clipped, 3) << "no random graph had an Unfold above which nothing is left";
}

}  // namespace
}  // namespace syno
