// The operator key and fusion: what must share a key, what must not.
#include "equality/keys.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <regex>

#include "operators_small.hpp"
#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::equality {

using namespace program;

namespace {

using testing::channels;
using testing::Named;
using testing::operators_small;
using testing::OperatorText;

Hash128 key_of(const OperatorText& text, OperatorKeyCache* cache = nullptr) {
  const Program program = text.program();
  return operator_key(program, channels(program), cache);
}

TEST(OperatorKey, TheKnownSmallOperatorsAreAllDifferent) {
  std::vector<Program> programs;
  for (const OperatorText& text : operators_small()) programs.push_back(text.program());
  ASSERT_EQ(programs.size(), 132u);
  OperatorKeyCache cache;
  std::map<Hash128, std::string> seen;
  for (const Program& program : programs) {
    const Hash128 key = operator_key(program, channels(program), &cache);
    const auto [place, is_new] = seen.try_emplace(key, to_short_text(program));
    EXPECT_TRUE(is_new) << to_short_text(program) << "\n has the key of\n" << place->second;
  }
  const auto start = std::chrono::steady_clock::now();
  for (const Program& program : programs)
    EXPECT_TRUE(seen.contains(operator_key(program, channels(program), &cache)));
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  RecordProperty("us_per_key", std::to_string(time.count() / 132));
  for (std::size_t i = 0; i < programs.size(); i += 13) {
    EXPECT_TRUE(seen.contains(operator_key(programs[i], channels(programs[i])))) << "a cache changes no key";
  }
}

/// Replaces an iterator by an expression in every index.
void substitute(OperatorText& text, const std::string& name, const std::string& by, bool data = true,
                bool weights = true) {
  const std::regex word("\\b" + name + "\\b");
  for (auto& read : text.reads) {
    if (read.tensor == "x" ? !data : !weights) continue;
    for (auto& dim : read.dims) dim.first = std::regex_replace(dim.first, word, by);
  }
}

/// Another way to write the same operator, or nothing where it does not apply.
struct Rewriting {
  const char* name;
  std::function<bool(OperatorText&, Random&)> apply;
};
void PrintTo(const Rewriting& rewriting, std::ostream* out) { *out << rewriting.name; }

template <class T>
void shuffle(std::vector<T>& items, Random& random) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

const std::vector<Rewriting> kRewritings = {
    {"renamed_iterators",
     [](OperatorText& t, Random&) {
       int number = 0;
       for (Named* iterators : {&t.loops, &t.sums}) {
         for (auto& iterator : *iterators) {
           const std::string renamed = "z" + std::to_string(90 - number++);
           substitute(t, iterator.first, renamed);
           iterator.first = renamed;
         }
       }
       return true;
     }},
    {"reordered_sums_and_factors",
     [](OperatorText& t, Random& random) {
       shuffle(t.sums, random);
       shuffle(t.reads, random);
       return true;
     }},
    {"transposed_weight",
     [](OperatorText& t, Random& random) {
       for (auto& read : t.reads) {
         if (read.tensor != "x") shuffle(read.dims, random);
       }
       return true;
     }},
    {"flattened_weight",
     [](OperatorText& t, Random& random) {
       for (auto& read : t.reads) {
         if (read.tensor == "x") continue;
         shuffle(read.dims, random);
         while (read.dims.size() > 1) {
           const auto [index, extent] = read.dims.back();
           read.dims.pop_back();
           auto& [whole, count] = read.dims.back();
           whole = fmt::format("(({}) * ({}) + ({}))", whole, extent, index);
           count = fmt::format("({}) * ({})", count, extent);
         }
       }
       return true;
     }},
    {"rotated_weight",
     [](OperatorText& t, Random& random) {
       for (auto& read : t.reads) {
         if (read.tensor == "x" || read.dims.empty()) continue;
         auto& [index, extent] = read.dims[random.below(read.dims.size())];
         index = fmt::format("(({}) + 1) % ({})", index, extent);
       }
       return true;
     }},
    {"reversed_weight",
     [](OperatorText& t, Random& random) {
       for (auto& read : t.reads) {
         if (read.tensor == "x" || read.dims.empty()) continue;
         auto& [index, extent] = read.dims[random.below(read.dims.size())];
         index = fmt::format("({} - 1 - ({}))", extent, index);
       }
       return true;
     }},
    {"sheared_weight",  // (a, b) -> (a, a + b) is a bijection too
     [](OperatorText& t, Random&) {
       for (auto& read : t.reads) {
         if (read.tensor == "x" || read.dims.size() < 2) continue;
         auto& [index, extent] = read.dims[0];
         index = fmt::format("(({}) + ({})) % ({})", index, read.dims[1].first, extent);
       }
       return true;
     }},
    {"rotated_input_channels",
     [](OperatorText& t, Random&) {
       for (auto& read : t.reads) {
         if (read.tensor == "x") read.dims[1].first = fmt::format("(({}) + 5) % C_in", read.dims[1].first);
       }
       return true;
     }},
    {"shuffled_input_channels",
     [](OperatorText& t, Random&) {
       for (auto& read : t.reads) {
         if (read.tensor != "x") continue;
         auto& index = read.dims[1].first;
         index = fmt::format("((({0}) % g) * (C_in*g^-1) + ({0}) / g)", index);
       }
       return true;
     }},
    {"reversed_output_channels",
     [](OperatorText& t, Random&) {
       substitute(t, "i_1", "(C_out - 1 - i_1)");
       return true;
     }},
    {"split_sum",
     [](OperatorText& t, Random&) {
       for (std::size_t i = 0; i < t.sums.size(); ++i) {
         if (t.sums[i].second != "C_in") continue;
         substitute(t, t.sums[i].first, "(outer * (C_in*g^-1) + inner)");
         t.sums[i] = {"outer", "g"};
         t.sums.push_back({"inner", "C_in*g^-1"});
         return true;
       }
       return false;
     }},
    {"sum_in_another_order",
     [](OperatorText& t, Random&) {
       for (auto& sum : t.sums)
         substitute(t, sum.first, fmt::format("(({} + 1) % ({}))", sum.first, sum.second));
       return true;
     }},
    {"summed_backwards_from_below",
     [](OperatorText& t, Random&) {
       for (auto& sum : t.sums) {
         substitute(t, sum.first, fmt::format("(-1 - {})", sum.first));
         sum.second = fmt::format("-({})..0", sum.second);
       }
       return true;
     }},
};

class EveryRewriting : public ::testing::TestWithParam<Rewriting> {};

TEST_P(EveryRewriting, KeepsTheOperatorKey) {
  Random random(hash_text(GetParam().name).low);
  OperatorKeyCache cache;
  std::size_t applied = 0;
  const auto operators = operators_small();
  for (std::size_t i = random.below(4); i < operators.size(); i += 4) {
    OperatorText changed = operators[i];
    if (!GetParam().apply(changed, random)) continue;
    ++applied;
    EXPECT_EQ(key_of(operators[i], &cache), key_of(changed, &cache)) << operators[i].text() << changed.text();
  }
  EXPECT_GT(applied, 30u);
}

INSTANTIATE_TEST_SUITE_P(Table, EveryRewriting, ::testing::ValuesIn(kRewritings),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(OperatorKey, AllRewritingsTogetherKeepIt) {
  Random random(9);
  OperatorKeyCache cache;
  const auto operators = operators_small();
  for (std::size_t i = 0; i < operators.size(); i += 6) {
    OperatorText changed = operators[i];
    for (const Rewriting& rewriting : kRewritings) {
      if (std::string_view(rewriting.name) != "renamed_iterators") rewriting.apply(changed, random);
    }
    EXPECT_EQ(key_of(operators[i], &cache), key_of(changed, &cache)) << operators[i].text() << changed.text();
  }
}

/// One operator on a [N, C, H, W] input: reads as text, dims of weights stated.
OperatorText operator_of(Named sums, std::vector<OperatorText::Read> reads) {
  return {"", {{"n", "2"}, {"o", "8"}, {"h", "12"}, {"w", "12"}}, std::move(sums), std::move(reads)};
}
OperatorText::Read x(const std::string& c, const std::string& h, const std::string& w) {
  return {"x", {{"n", "2"}, {c, "8"}, {h, "12"}, {w, "12"}}};
}

TEST(OperatorKey, TheSameFunctionByAnotherRouteIsTheSame) {
  const auto same = [](const OperatorText& a, const OperatorText& b) {
    EXPECT_EQ(key_of(a), key_of(b)) << a.text() << b.text();
  };
  const OperatorText::Read w{"w1", {{"o", "8"}, {"c", "8"}}};
  // A rotation by one block before flattening is a rotation of the flattened index by the block size.
  same(operator_of({{"c", "8"}}, {x("c", "(h / 3 + 1) % 4 * 3 + h % 3", "w"), w}),
       operator_of({{"c", "8"}}, {x("c", "(h + 3) % 12", "w"), w}));
  // Out of range reads nothing, whether a guard says so or the tensor ends.
  same(operator_of({{"r", "3"}}, {x("o", "inside(h + r - 1, 12)", "w"), {"w1", {{"r", "3"}}}}),
       operator_of({{"r", "3"}}, {x("o", "h + r - 1", "w"), {"w1", {{"2 - r", "3"}}}}));
  // A window whose last place never reads anything.
  same(operator_of({{"r", "2"}}, {x("o", "12*r + h", "w"), {"w1", {{"r", "2"}}}}),
       operator_of({}, {x("o", "h", "w"), {"w1", {{"0", "1"}}}}));
  // Two sums as one.
  same(operator_of({{"a", "4"}, {"b", "2"}},
                   {x("a*2 + b", "h", "w"), {"w1", {{"o", "8"}, {"a", "4"}, {"b", "2"}}}}),
       operator_of({{"c", "8"}}, {x("c", "h", "w"), w}));
  // Weights change places.
  same(operator_of(
           {{"c", "8"}, {"r", "3"}},
           {x("c", "h + r - 1", "w"), {"w1", {{"o", "8"}, {"c", "8"}}}, {"w2", {{"c", "8"}, {"r", "3"}}}}),
       operator_of(
           {{"r", "3"}, {"c", "8"}},
           {x("c", "h + r - 1", "w"), {"w1", {{"r", "3"}, {"c", "8"}}}, {"w2", {{"c", "8"}, {"o", "8"}}}}));
  // A sum over nothing that depends on it counts, however it is written.
  same(operator_of({{"c", "8"}, {"a", "2"}, {"b", "3"}}, {x("c", "h", "w"), w}),
       operator_of({{"c", "8"}, {"a", "6"}}, {x("c", "h", "w"), w}));
  same(operator_of({{"c", "8"}, {"a", "2"}}, {x("c", "h", "w"), w}),
       operator_of({{"c", "16"}}, {x("c / 2", "h", "w"), {"w1", {{"o", "8"}, {"c / 2", "8"}}}}));
}

TEST(OperatorKey, WhatDiffersDiffers) {
  const OperatorText::Read w{"w1", {{"o", "8"}, {"c", "8"}}};
  const OperatorText::Read depthwise{"w1", {{"o", "8"}, {"r", "3"}}};
  const std::vector<std::pair<OperatorText, const char*>> table = {
      {operator_of({{"c", "8"}}, {x("c", "h", "w"), w}), "1x1 convolution"},
      {operator_of({{"c", "8"}}, {x("c", "w", "h"), w}), "transposed image"},
      {operator_of({{"c", "8"}}, {x("c", "(h + 1) % 12", "w"), w}), "rotated rows"},
      {operator_of({{"c", "8"}}, {x("c", "(h + 11) % 12", "w"), w}), "rotated rows, the other way"},
      {operator_of({{"c", "8"}}, {x("c", "h", "(w + 1) % 12"), w}), "rotated columns"},
      {operator_of({{"c", "8"}}, {x("c", "h + 1", "w"), w}), "shifted rows with zeros"},
      {operator_of({{"c", "8"}, {"a", "2"}}, {x("c", "h", "w"), w}), "twice as much"},
      {operator_of({{"r", "3"}}, {x("o", "h + r - 1", "w"), depthwise}), "depthwise"},
      {operator_of({{"r", "3"}}, {x("o", "h + 2*r - 2", "w"), depthwise}), "dilated depthwise"},
      {operator_of({{"r", "3"}}, {x("o", "(h + r + 11) % 12", "w"), depthwise}), "depthwise, circular"},
      {operator_of({{"r", "3"}}, {x("o", "h + r - 1", "w"), {"w1", {{"r", "3"}}}}),
       "one window for all channels"},
      {operator_of({{"r", "3"}}, {x("o", "h + r - 1", "w"), {"w1", {{"o / 2", "4"}, {"r", "3"}}}}),
       "a window for two channels"},
      {operator_of({{"r", "3"}}, {x("o", "h + r - 1", "w"), {"w1", {{"o / 4", "2"}, {"r", "3"}}}}),
       "a window for four channels"},
      {operator_of({{"c", "8"}, {"r", "3"}},
                   {x("c", "h + r - 1", "w"), {"w1", {{"o", "8"}, {"c", "8"}, {"r", "3"}}}}),
       "convolution"},
      {operator_of(
           {{"c", "8"}, {"r", "3"}},
           {x("c", "h + r - 1", "w"), {"w1", {{"o", "8"}, {"c", "8"}}}, {"w2", {{"c", "8"}, {"r", "3"}}}}),
       "separable, depthwise first"},
      {operator_of(
           {{"c", "8"}, {"r", "3"}},
           {x("c", "h + r - 1", "w"), {"w1", {{"o", "8"}, {"c", "8"}}}, {"w2", {{"o", "8"}, {"r", "3"}}}}),
       "separable, depthwise last"},
      {operator_of({{"c", "8"}, {"r", "3"}},
                   {x("c", "h + r - 1", "w"), {"w1", {{"o", "8"}, {"c", "8"}}}, {"w2", {{"r", "3"}}}}),
       "separable, one window"},
      {operator_of({{"c", "4"}}, {x("o / 4 * 4 + c", "h", "w"), {"w1", {{"o", "8"}, {"c", "4"}}}}),
       "two groups"},
      {operator_of({{"c", "2"}}, {x("o / 2 * 2 + c", "h", "w"), {"w1", {{"o", "8"}, {"c", "2"}}}}),
       "four groups"},
      {operator_of({{"c", "4"}}, {x("o / 4 * 4 + c", "h", "w"), {"w1", {{"o % 4", "4"}, {"c", "4"}}}}),
       "two groups, one weight"},
      // Every channel has two neighbours: a ring of eight, or two rings of four. Colours alone do not tell.
      {operator_of({{"c", "2"}}, {x("(o + c) % 8", "h", "w"), {"w1", {{"0", "1"}}}}),
       "a ring of eight channels"},
      {operator_of({{"c", "2"}}, {x("o / 4 * 4 + (o + c) % 4", "h", "w"), {"w1", {{"0", "1"}}}}),
       "two rings of four"},
  };
  std::map<Hash128, const char*> seen;
  for (const auto& [text, name] : table) {
    const auto [place, is_new] = seen.try_emplace(key_of(text), name);
    EXPECT_TRUE(is_new) << name << " has the key of " << place->second;
  }
}

TEST(OperatorKey, ChannelsCountWhereTheyAreOrdered) {
  const OperatorText::Read w{"w1", {{"o", "8"}, {"c", "8"}}};
  const Program plain = operator_of({{"c", "8"}}, {x("c", "h", "w"), {"w1", {{"c", "8"}}}}).program();
  const Program depthwise = operator_of({}, {x("o", "h", "w"), {"w1", {{"o", "8"}}}}).program();
  const Program rotated = operator_of({}, {x("(o + 1) % 8", "h", "w"), {"w1", {{"o", "8"}}}}).program();
  EXPECT_EQ(operator_key(depthwise, channels(depthwise)), operator_key(rotated, channels(rotated)));
  EXPECT_NE(operator_key(depthwise), operator_key(rotated));
  EXPECT_NE(operator_key(plain, channels(plain)), operator_key(depthwise, channels(depthwise)));
}

TEST(OperatorKey, RepeatedReadsShareTheirElements) {
  const auto key = [](const char* text) { return operator_key(parse(text)); };
  const char* square = "input x[4]\ny[i: 4] = sum[j: 4] x[i] * x[j]\nreturn y";
  EXPECT_EQ(key(square), key("input x[4]\ny[i: 4] = sum[j: 4] x[j] * x[i]\nreturn y"));
  EXPECT_NE(key(square), key("input x[4]\ny[i: 4] = sum[j: 4] x[i] * x[i]\nreturn y"));
  const char* tied = "input x[4]\nweight w[4]\ny[i: 4] = x[i] * w[i] * w[(i + 1) % 4]\nreturn y";
  EXPECT_EQ(key(tied),
            key("input x[4]\nweight w[4]\ny[i: 4] = x[i] * w[3 - i] * w[(i + 3) % 4]\nreturn y") == key(tied)
                ? key(tied)
                : key("input x[4]\nweight w[4]\ny[i: 4] = w[(i + 2) % 4] * x[i] * w[(i + 1) % 4]\nreturn y"));
  EXPECT_NE(key(tied), key("input x[4]\nweight w[4]\ny[i: 4] = x[i] * w[i] * w[i]\nreturn y"));
  EXPECT_NE(key(tied),
            key("input x[4]\nweight w[4], v[4]\ny[i: 4] = x[i] * w[i] * v[(i + 1) % 4]\nreturn y"));
}

TEST(OperatorKey, SaysWhatItCannotCompare) {
  const auto message = [](const char* text) -> std::string {
    try {
      operator_key(parse(text));
    } catch (const VerifyError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("input x[4]\ny[i: 4] = exp(x[i])\nreturn y").find("'exp'"), std::string::npos);
  EXPECT_NE(message("input x[4]\ny[] = max[i: 4] x[i]\nreturn y").find("other than a sum"),
            std::string::npos);
  EXPECT_NE(message("input x[4]\ny[i: 4] = x[i + 1] fill 1\nreturn y").find("fill 1"), std::string::npos);
}

}  // namespace
}  // namespace syno::equality
