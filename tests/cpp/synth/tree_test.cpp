// Tree search: deterministic, resumable, none twice, drawn to what is rewarded.
#include "synth/tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "small_specs.hpp"
#include "support/error.hpp"
#include "synth/enumerate.hpp"

namespace syno::synth {
namespace {

/// Prefers windows: a reward that a search can learn from steps.
double reward(const pgraph::CompleteGraph& graph) {
  double unfolds = 0;
  for (const auto& step : graph.graph.steps()) unfolds += step.primitive == pgraph::Primitive::Unfold;
  return std::min(1.0, unfolds / 2);
}

std::vector<std::string> texts(const std::vector<Tree::Ticket>& tickets) {
  std::vector<std::string> result;
  for (const auto& ticket : tickets) result.push_back(pgraph::to_text(ticket.graph));
  return result;
}

TEST(Tree, TheOrderOfTellingDoesNotMatter) {
  const Spec spec = testing::line_spec(6);
  Tree forward(spec, 5);
  Tree backward(spec, 5);
  for (int round = 0; round < 8; ++round) {
    const auto a = forward.ask(4);
    const auto b = backward.ask(4);
    ASSERT_EQ(texts(a), texts(b)) << "round " << round;
    for (const auto& ticket : a) forward.tell(ticket.number, reward(ticket.graph));
    for (std::size_t i = b.size(); i-- > 0;) backward.tell(b[i].number, reward(b[i].graph));
  }
  EXPECT_EQ(forward.to_json(), backward.to_json());
}

TEST(Tree, ContinuesFromItsJsonAsIfNothingHadHappened) {
  const Spec spec = testing::line_spec(6);
  Tree kept(spec, 9);
  for (int round = 0; round < 6; ++round) {
    const auto tickets = kept.ask(3);
    for (const auto& ticket : tickets) {
      if (round < 5 || ticket.number % 2 == 0) kept.tell(ticket.number, reward(ticket.graph));
    }
  }
  Tree again = Tree::from_json(spec, kept.to_json());
  EXPECT_EQ(again.to_json(), kept.to_json());
  EXPECT_EQ(texts(again.pending()), texts(kept.pending()));
  for (const auto& ticket : kept.pending()) {
    kept.tell(ticket.number, 0.25);
    again.tell(ticket.number, 0.25);
  }
  for (int round = 0; round < 4; ++round) {
    const auto a = kept.ask(3);
    const auto b = again.ask(3);
    ASSERT_EQ(texts(a), texts(b)) << "round " << round;
    for (const auto& ticket : a) {
      kept.tell(ticket.number, reward(ticket.graph));
      again.tell(ticket.number, reward(ticket.graph));
    }
  }
}

TEST(Tree, NeverHandsOutAnOperatorTwiceAndStopsWhenAllAreOut) {
  const Spec spec = testing::line_spec(3);
  const Enumeration all = enumerate(spec);
  Tree tree(spec, 1);
  std::set<std::string> seen;
  for (;;) {
    const auto tickets = tree.ask(5);
    if (tickets.empty()) break;
    for (const auto& ticket : tickets) {
      EXPECT_TRUE(seen.insert(pgraph::to_text(ticket.graph)).second);
      tree.tell(ticket.number, reward(ticket.graph));
    }
    ASSERT_LE(seen.size(), all.operators.size());
  }
  EXPECT_EQ(seen.size(), all.operators.size());
}

class StridedTree : public ::testing::TestWithParam<int> {};

TEST_P(StridedTree, FindsOperatorsAndContinuesFromItsJson) {
  const Spec spec = testing::strided_spec(GetParam());
  Tree kept(spec, 4);
  for (int round = 0; round < 5; ++round) {
    const auto tickets = kept.ask(4);
    ASSERT_EQ(tickets.size(), 4U) << "round " << round;
    for (const auto& ticket : tickets) kept.tell(ticket.number, reward(ticket.graph));
  }
  // Nothing of what it learnt on the way is in the text, nor has to be.
  Tree again = Tree::from_json(spec, kept.to_json());
  EXPECT_EQ(again.to_json(), kept.to_json());
  EXPECT_EQ(texts(again.ask(8)), texts(kept.ask(8)));
  EXPECT_EQ(again.to_json(), kept.to_json());
}
INSTANTIATE_TEST_SUITE_P(Steps, StridedTree, ::testing::Values(8, 9, 10));

TEST(FullTree, GrowsNoFurtherAndGoesOnFindingOperators) {
  Spec spec = testing::line_spec(6);
  const auto run = [](Tree& tree, int rounds) {
    std::vector<std::string> found;
    for (int round = 0; round < rounds; ++round) {
      for (const auto& ticket : tree.ask(4)) {
        found.push_back(pgraph::to_text(ticket.graph));
        tree.tell(ticket.number, reward(ticket.graph));
      }
    }
    return found;
  };
  Tree free(spec, 3);
  run(free, 60);
  spec.budgets.max_tree_mb = static_cast<double>(free.bytes()) / 4e6;
  Tree small(spec, 3);
  std::vector<std::string> found = run(small, 20);
  const std::size_t nodes = small.node_count();
  Tree again = Tree::from_json(spec, small.to_json());
  EXPECT_EQ(again.to_json(), small.to_json());
  EXPECT_EQ(again.bytes(), small.bytes());
  const std::vector<std::string> more = run(small, 40);
  EXPECT_EQ(run(again, 40), more) << "goes on as if nothing had happened";
  EXPECT_EQ(again.to_json(), small.to_json());
  found.insert(found.end(), more.begin(), more.end());
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), 240U);
  EXPECT_LT(small.node_count(), nodes + 100);
  EXPECT_LT(small.node_count(), free.node_count() / 2);
  // What rewards tell of steps is kept in any case.
  EXPECT_LT(static_cast<double>(small.bytes()), 1e6 * spec.budgets.max_tree_mb + 240 * 12 * 12 * 64);
  EXPECT_EQ(small.results().size(), 240U);
}

TEST(FullTree, HandsOutAllThereIs) {
  Spec spec = testing::line_spec(3);
  const Enumeration all = enumerate(spec);
  spec.budgets.max_tree_mb = 1e-3;  // no more than the root
  Tree tree(spec, 1);
  std::set<std::string> seen;
  for (std::vector<Tree::Ticket> tickets = tree.ask(5); !tickets.empty(); tickets = tree.ask(5)) {
    for (const auto& ticket : tickets) {
      EXPECT_TRUE(seen.insert(pgraph::to_text(ticket.graph)).second);
      tree.tell(ticket.number, reward(ticket.graph));
    }
  }
  EXPECT_EQ(seen.size(), all.operators.size());
}

TEST(Tree, FindsMoreOfWhatIsRewardedThanItWouldWithoutRewards) {
  const Spec spec = testing::line_spec(6);
  double learnt = 0;
  double blind = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Tree told(spec, seed);
    Tree flat(spec, seed);
    for (int round = 0; round < 25; ++round) {
      for (const auto& ticket : told.ask(4)) {
        told.tell(ticket.number, reward(ticket.graph));
        learnt += reward(ticket.graph);
      }
      for (const auto& ticket : flat.ask(4)) {
        flat.tell(ticket.number, 0.5);
        blind += reward(ticket.graph);
      }
    }
  }
  EXPECT_GT(learnt, 1.1 * blind);
}

TEST(Tree, WrongTicketsAndRewardsAreRefused) {
  const Spec spec = testing::line_spec(4);
  Tree tree(spec, 1);
  EXPECT_THROW(tree.tell(0, 0.5), SpecError);
  const auto tickets = tree.ask(1);
  ASSERT_EQ(tickets.size(), 1U);
  EXPECT_THROW(tree.tell(0, 1.5), SpecError);
  EXPECT_THROW(tree.tell(0, std::nan("")), SpecError);
  tree.tell(0, 0.5);
  EXPECT_THROW(tree.tell(0, 0.5), SpecError);
}

TEST(Tree, DamagedTextsAreRefused) {
  const Spec spec = testing::line_spec(4);
  Tree tree(spec, 1);
  tree.ask(3);
  const std::string json = tree.to_json();
  EXPECT_THROW(Tree::from_json(spec, json.substr(0, json.size() / 2)), FormatError);
  EXPECT_THROW(Tree::from_json(spec, "{}"), FormatError);
  EXPECT_THROW(Tree::from_json(testing::line_spec(5), json), SpecError);
  std::string newer = json;
  newer.replace(newer.find("\"format\":3"), 10, "\"format\":7");
  EXPECT_THROW(Tree::from_json(spec, newer), FormatError);
}

}  // namespace
}  // namespace syno::synth
