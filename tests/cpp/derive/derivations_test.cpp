// Derivations of operators as they are used: the steps that lead from each to a form that is known to be
// fast, and what it computes there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "derive/checking.hpp"
#include "derive/forms.hpp"

namespace syno::derive {
namespace {

using namespace testing;

struct DerivedStep {
  std::string row, scope, iterator, other;
  std::vector<std::int64_t> numbers = {};
};

/// One step after the other; every program on the way computes what the first one did.
Program derived(Program p, const std::vector<DerivedStep>& steps) {
  const Program first = p;
  for (const DerivedStep& step : steps) {
    const Rewrite& row = rewrite_named(step.row);
    const Site site{step.scope, step.iterator, step.other, {}, step.numbers};
    const std::string before = program::to_text(p);
    try {
      p = tidy(applied(row, std::move(p), site));
    } catch (const ScheduleError& error) {
      std::string found;
      for (const Site& other : sites(row, program::parse(before))) found += text_of(row, other) + "\n";
      ADD_FAILURE() << error.what() << "\n" << before << "sites:\n" << found;
      return p;
    }
    EXPECT_EQ(difference(first, p, Random(1)), "") << text_of(row, site) << "\n" << program::to_text(p);
  }
  if (std::getenv("PRINT_DERIVATIONS") != nullptr) fmt::print("{}\n", program::to_text(p));
  return p;
}

constexpr const char* kConvolution =
    "y[n: 1,o: 3,h: 7,w: 6] = sum[c: 2,r: 3,s: 3] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]";

TEST(Derivations, MakeWinogradOfAConvolution) {
  const Program p = derived(program::parse(kConvolution), {{"toom_cook", "y", "h", "r", {4, 3}},
                                                           {"toom_cook", "y_products", "w", "s", {2, 3}}});
  EXPECT_EQ(p.scopes.size(), 7U);
}

TEST(Derivations, LayWhatIsTransformedOutByChannels) {
  const char* text = "y[n: 1,o: 9,h: 4,w: 4] = sum[c: 8,r: 3,s: 3] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]";
  const Program p = derived(program::parse(text), {{"toom_cook", "y", "h", "r", {2, 3}},
                                                   {"toom_cook", "y_products", "w", "s", {2, 3}},
                                                   {"innermost", "y", "", ""}});
  std::map<std::string, std::string> innermost;
  for (const Scope& scope : p.scopes) innermost[p.tensor(scope.output).name] = scope.traversal.back().name;
  EXPECT_EQ(innermost.at("y_data"), "c");
  EXPECT_EQ(innermost.at("y_data2"), "c");
  EXPECT_EQ(innermost.at("y_products2"), "o");
  EXPECT_EQ(innermost.at("y_products"), "o");
  EXPECT_EQ(innermost.at("y_turned"), "o");
  EXPECT_EQ(innermost.at("y"), "w");  // the caller's
  EXPECT_TRUE(sites(rewrite_named("innermost"), p).empty());
}

TEST(Derivations, MakeAProductOfMatricesOfAConvolution) {
  derived(program::parse(kConvolution), {{"split_sum", "y", "r,s", "", {1, 2}},
                                         {"substitute", "y_terms", "h", "r", {1, 1, -1}},
                                         {"substitute", "y_moved", "w", "s", {1, 1, -1}},
                                         {"tighten", "y_moved2", "h", "", {0, 7}},
                                         {"tighten", "y_moved2", "w", "", {0, 6}},
                                         {"merge_iterators", "y_moved2", "h", "w"},
                                         {"merge_iterators", "y_merged", "r", "s"}});
}

// In a band of a product every row reads columns of its own; rows of a block have them in common.
TEST(Derivations, MakeBlocksOfABand) {
  derived(program::parse("y[b: 2,m: 20,w: 9] = sum[k: 3] a[b,m,k] * c[b,m+w-4,k]",
                         {.shapes = {{"c", {2, 20, 3}}}}),
          {{"split_iterator", "y", "m", "", {8}}, {"substitute", "y_split", "w", "mm", {1, 1, -4}}});
  derived(program::parse("y[m: 37,w: 5] = sum[k: 3] a[m,k] * c[m+4*w-8,k]", {.shapes = {{"c", {37, 3}}}}),
          {{"split_iterator", "y", "m", "", {4}},
           {"split_iterator", "y_split", "m", "", {8}},
           {"substitute", "y_split2", "w", "mm2", {1, 1, -2}}});
}

TEST(Derivations, MakeWinogradOfEveryKindOfConvolution) {
  const auto products = [](const char* text, std::vector<DerivedStep> before,
                           std::vector<DerivedStep> tiles) {
    Program p = derived(program::parse(text), before);
    for (const DerivedStep& step : tiles) p = derived(p, {step});
    return p;
  };
  // One dimension, of windows as they are in practice; tiles that do not divide.
  products("y[o: 2,h: 3,w: 9] = sum[c: 2,s: 7] x[c,h,w+s-3] * k[o,c,s]", {},
           {{"toom_cook", "y", "w", "s", {4, 7}}});
  products("y[o: 2,w: 7] = sum[c: 2,s: 3] x[c,w+s-1] * k[o,c,s]", {}, {{"toom_cook", "y", "w", "s", {6, 3}}});
  // Tiles of two sizes, 7 = 4 + 3.
  products("y[o: 2,w: 7] = sum[c: 2,s: 3] x[c,w+s-1] * k[o,c,s]", {{"split_range", "y", "w", "", {4}}},
           {{"toom_cook", "y_low", "w", "s", {4, 3}}, {"toom_cook", "y_high", "w", "s", {3, 3}}});
  // Three dimensions.
  products("y[o: 2,d: 4,h: 4,w: 5] = sum[c: 2,q: 3,r: 3,s: 3] x[c,d+q-1,h+r-1,w+s-1] * k[o,c,q,r,s]", {},
           {{"toom_cook", "y", "d", "q", {2, 3}},
            {"toom_cook", "y_products", "h", "r", {2, 3}},
            {"toom_cook", "y_products2", "w", "s", {2, 3}}});
  // Groups, and one channel a group.
  products("y[g: 2,o: 2,h: 5,w: 4] = sum[c: 3,r: 3,s: 3] x[3*g+c,h+r-1,w+s-1] * k[g,o,c,r,s]", {},
           {{"toom_cook", "y", "h", "r", {4, 3}}, {"toom_cook", "y_products", "w", "s", {4, 3}}});
  products("y[c: 3,h: 6,w: 6] = sum[r: 3,s: 3] x[c,h+r-1,w+s-1] * k[c,r,s]", {},
           {{"toom_cook", "y", "h", "r", {6, 3}}, {"toom_cook", "y_products", "w", "s", {2, 3}}});
  // Stride 2: the even and the odd columns of the window.
  products("y[o: 2,h: 6,w: 3] = sum[c: 2,r: 4,s: 3] x[c,2*h+r-1,2*w+s-1] * k[o,c,r,s]",
           {{"split_iterator", "y", "r", "", {2}}, {"split_iterator", "y", "s", "", {2}}},
           {{"toom_cook", "y", "h", "r", {2, 2}}, {"toom_cook", "y_products", "w", "s", {2, 2}}});
  // Three taps with stride 2: windows of two taps and of one, whose results are added.
  products("y[o: 2,h: 5,w: 4] = sum[c: 2,r: 3,s: 3] x[c,2*h+r-1,2*w+s-1] * k[o,c,r,s]",
           {{"split_remainders", "y", "r,s", "", {1, 2, 2, 2}}},
           {{"toom_cook", "y_part", "h", "r", {2, 2}},
            {"toom_cook", "y_products", "w", "s", {2, 2}},
            {"toom_cook", "y_part2", "h", "r", {4, 2}},
            {"toom_cook", "y_part3", "w", "s", {4, 2}}});
  // Five taps with stride 3, of a sum that does not begin at 0.
  products("y[h: 6] = sum[c: 2,r: 5] x[c,3*h+r-2] * k[c,r]", {{"split_remainders", "y", "r", "", {1, 3}}},
           {{"toom_cook", "y_part2", "h", "r", {2, 2}}});
  // Dilation 2: a batch of dense ones.
  products("y[o: 2,h: 8,w: 6] = sum[c: 2,r: 3,s: 3] x[c,h+2*r-2,w+2*s-2] * k[o,c,r,s]",
           {{"split_iterator", "y", "h", "", {2}}, {"split_iterator", "y_split", "w", "", {2}}},
           {{"toom_cook", "y_split2", "h", "r", {4, 3}}, {"toom_cook", "y_products", "w", "s", {2, 3}}});
  // Transposed with stride 2: what is not zero of it, by where the results lie.
  products("y[o: 2,h: 7] = sum[c: 2,r: 4] x[c,(h+1-r)/2 + inside((h+1-r)%2,1)] * k[c,o,r]",
           {{"split_iterator", "y", "h", "", {2}}, {"solve", "y_split", "r", ""}},
           {{"toom_cook", "y_split", "h", "r", {2, 2}}});
  products("y[o: 1,h: 8,w: 8] = sum[c: 2,r: 5,s: 5] x[c,h+2-r,w+2-s] * k[c,o,r,s]", {},
           {{"toom_cook", "y", "h", "r", {4, 5}}, {"toom_cook", "y_products", "w", "s", {2, 5}}});
  // 5x5 as windows of three: the sixth column is zero.
  products("y[o: 2,h: 8] = sum[c: 2,r: 5] x[c,h+r-2] * k[o,c,r]",
           {{"relax", "y", "r", "", {0, 6}}, {"split_iterator", "y", "r", "", {3}}},
           {{"toom_cook", "y", "h", "rm", {4, 3}}});
  // The gradient of a convolution's weights: a window as large as the image, in parts.
  products("g[o: 2,c: 2,r: 3] = sum[n: 2,h: 8] x[n,c,h+r-1] * d[n,o,h]",
           {{"split_iterator", "g", "h", "", {4}}}, {{"toom_cook", "g", "r", "hm", {3, 4}}});
}

// Every map of iterators that is one to one over the integers is undone by steps that the indices suggest.
TEST(Derivations, UndoEveryUnimodularMap) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
    const std::size_t rank = 2 + seed % 2;
    std::vector<std::vector<std::int64_t>> map(rank, std::vector<std::int64_t>(rank, 0));
    for (std::size_t d = 0; d < rank; ++d) map[d][d] = 1;
    for (int step = 0; step < 4; ++step) {
      const auto from = static_cast<std::size_t>(below(static_cast<int>(rank))),
                 to = (from + 1 + static_cast<std::size_t>(below(static_cast<int>(rank) - 1))) % rank;
      const std::int64_t times = below(2) == 0 ? 1 + below(2) : -1 - below(2);
      for (std::size_t i = 0; i < rank; ++i) map[to][i] += times * map[from][i];
    }
    std::vector<std::string> ranges, indices;
    for (std::size_t i = 0; i < rank; ++i) ranges.push_back(fmt::format("{}: {}", "ijk"[i], 2 + below(2)));
    for (const auto& row : map) {
      std::string index = std::to_string(below(3));
      for (std::size_t i = 0; i < rank; ++i)
        if (row[i] != 0) index += fmt::format(" + {}*{}", row[i], "ijk"[i]);
      indices.push_back(index);
    }
    const std::string text = fmt::format("y[{}] = x[{}]", fmt::join(ranges, ","), fmt::join(indices, ","));
    Program p = program::parse(text, {.shapes = {{"x", std::vector<std::int64_t>(rank, 4)}}});
    // What the scope that reads x has in its indices, as the sum of all coefficients.
    const auto reads = [&](const Program& program) {
      std::int64_t all = 0;
      for (const Scope& scope : program.scopes)
        if (program.tensor(scope.output).name != "y" || program.scopes.size() == 1)
          over_forms(program, scope.body, [&](const Affine& form, std::int64_t) {
            for (const auto& [atom, coefficient] : form.terms) all += std::abs(coefficient);
          });
      return all;
    };
    while (reads(p) > static_cast<std::int64_t>(rank)) {
      std::optional<DerivedStep> best;
      std::int64_t least = reads(p);
      for (const Site& site : sites(rewrite_named("substitute"), p)) {
        Program next = p;
        apply(rewrite_named("substitute"), next, site);
        if (const std::int64_t now = reads(next); now < least) {
          least = now;
          best = {"substitute", site.scope, site.iterator, site.other, site.numbers};
        }
      }
      ASSERT_TRUE(best) << text << "\n" << program::to_text(p);
      p = derived(p, {*best});
    }
  }
}

TEST(Derivations, MakeProductsOfMatricesOfOtherOperators) {
  // A transposed convolution: products, then results added where they belong.
  derived(program::parse("y[o: 2,h: 8] = sum[c: 3,r: 4] x[c,(h+1-r)/2 + inside((h+1-r)%2,1)] * k[c,o,r]"),
          {{"split_iterator", "y", "h", "", {2}},
           {"solve", "y_split", "r", ""},
           {"split_sum", "y_split", "r", "", {1}},
           {"merge_iterators", "y_terms", "r", "o"}});
  // A dilated band of a product: a batch of bands that are not dilated.
  derived(program::parse("y[b: 2,m: 8,w: 5] = sum[k: 3] p[b,m,k] * q[b,m+2*w-4,k]"),
          {{"split_iterator", "y", "m", "", {2}},
           {"operand", "y_split", "", "q", {1}},
           {"substitute", "y_operand", "m", "w", {1, 1, -2}}});
  derived(program::parse("y[i: 12,j: 8] = sum[k: 10] p[i,k] * q[k,j]"), {{"strassen", "y", "i", "j", {0}}});
  // A low-rank product in one sum, and in the other order.
  const Program one = derived(program::parse("t[i: 5,r: 3] = sum[c: 6] x[i,c] * a[r,c]\n"
                                             "u[i: 5,r: 3] = t[i+1,r] * g[r]\n"
                                             "y[i: 4,o: 7] = sum[r: 3] u[i,r] * b[o,r]\nreturn y"),
                              {{"one_scope", "y", "", ""}});
  ASSERT_EQ(one.scopes.size(), 1U);
  EXPECT_EQ(one.scopes[0].sums.size(), 2U);
  // Sums that are called alike there have names of their own here.
  const Program alike = derived(program::parse("t[i: 5] = sum[c: 3] x[i,c] * a[c]\n"
                                               "y[] = sum[c: 5] t[c] * b[c]\nreturn y"),
                                {{"one_scope", "y", "", ""}});
  ASSERT_EQ(alike.scopes[0].sums.size(), 2U);
  EXPECT_NE(alike.scopes[0].sums[0].name, alike.scopes[0].sums[1].name);
  // One operand, three products: queries, keys and values.
  const Program merged = derived(
      program::parse("a[i: 4,o: 3] = sum[c: 5] x[i,c] * q[o,c]\nb[i: 4,o: 3] = sum[c: 5] x[i,c] * k[o,c]\n"
                     "v[i: 4,o: 6] = sum[c: 5] x[i,c] * l[o,c]\nreturn a, b, v"),
      {{"merge_scopes", "a", "o", "b"}, {"merge_scopes", "a_b", "o", "v"}});
  EXPECT_EQ(std::count_if(merged.scopes.begin(), merged.scopes.end(),
                          [](const Scope& scope) { return !scope.sums.empty(); }),
            1);
}

TEST(Derivations, AreRefusedWhereTheyWouldNotHold) {
  const auto none = [](const char* row, const char* text) {
    const Program p = program::parse(text);
    EXPECT_TRUE(sites(rewrite_named(row), p).empty()) << row << "\n" << text;
  };
  none("toom_cook", "y[h: 8] = max[r: 3] x[h+r] * k[r]");           // no sum
  none("toom_cook", "y[h: 8] = sum[r: 3] x[2*h+r] * k[r]");         // nothing slides by one
  none("toom_cook", "y[h: 8] = sum[r: 3] x[h+r] * k[r] * g[h]");    // a factor of h alone
  none("toom_cook", "y[h: 8] = sum[r: 3] x[h+r] * z[h-r] * k[r]");  // two ways at once
  none("toom_cook", "y[h: 8] = sum[r: 3] x[h+r]");                  // no products
  none("toom_cook", "y[h: 8] = sum[r: 10] x[h+r] * k[r]");          // too many points
  none("toom_cook", "y[h: 8] = sum[r: 3] x[h+r] * (k[r] / l[r])");  // may be no number
  none("one_scope", "t[i: 5] = sum[c: 3] x[i,c]\ny[] = sum[i: 5] relu(t[i])\nreturn y");  // no product
  none("one_scope", "t[i: 5] = max[c: 3] x[i,c]\ny[] = sum[i: 5] t[i] * t[i]\nreturn y");
  none("one_scope", "t[i: 5] = sum[c: 3] x[i,c]\ny[] = sum[i: 5] t[i]\nreturn t, y");  // t is wanted, too
  none("one_scope", "t[i: 5] = x[i]\ny[] = sum[i: 5] t[i]\nreturn y");                 // `inline` does that
  none("split_remainders", "y[h: 8] = max[r: 3] x[2*h+r] * k[r]");                     // no sum
  none("split_remainders", "y[h: 8] = sum[r: 3] x[h+r] * k[r]");                       // no stride
  none("split_remainders", "y[h: 8] = sum[r: 4] x[2*h+r] * k[r]");  // `split_iterator` makes one of all
  none("split_remainders", "y[h: 8] = sum[r: 2] x[3*h+r] * k[r]");  // fewer terms than remainders
  none("strassen", "y[i: 9,j: 8] = sum[k: 8] a[i,k] * b[k,j]");     // no two halves
  none("strassen", "y[i: 8,j: 8] = sum[k: 8] a[i,k+j] * b[k,j]");   // no product of matrices
  none("split_sum", "y[i: 3] = sum[k: 4] a[i,k]");
  none("merge_sum", "t[i: 3] = max[k: 4] a[i,k]\ny[] = sum[i: 3] t[i]\nreturn y");
  none("merge_sum", "t[i: 3] = sum[k: 4] a[i,k]\ny[] = sum[i: 3] (t[i+1] fill 2)\nreturn y");
  none("substitute", "y[h: 3,r: 3] = 1 / x[h+r]");       // no value where nobody reads
  none("tighten", "y[h: 5] = sum[c: 2] x[c,h] * k[c]");  // nothing is zero
  // An infinity times zero is no number: no element may be in a window.
  const std::string pool =
      "t[h: 8] = max[r: 3] x[h+r-{}] fill -inf\ny[h: 8] = sum[r: 3] t[h+r-1] * k[r]\n"
      "input x[8]; return y";
  EXPECT_FALSE(sites(rewrite_named("toom_cook"), program::parse(fmt::format(fmt::runtime(pool), 1))).empty());
  none("toom_cook", fmt::format(fmt::runtime(pool), 4).c_str());
  none("tighten", "t[h: 9] = a[h-2]\ny[h: 9] = (t[h+1] fill 3)\nreturn y");
  none("innermost", "t[c: 9,h: 9] = x[c,h] * 2\ny[c: 9,h: 9] = t[c,h] * k[c]\nreturn y");  // good as it is
  const std::string windows =
      "t[c: {0},h: 9] = x[c,h] * 2\ny[c: {0},h: 9] = sum[r: 3] t[c,h+r-1] * k[r]\nreturn y{1}";
  EXPECT_EQ(
      sites(rewrite_named("innermost"), program::parse(fmt::format(fmt::runtime(windows), 9, ""))).size(),
      1u);
  none("innermost", fmt::format(fmt::runtime(windows), 3, "").c_str());     // few in a vector
  none("innermost", fmt::format(fmt::runtime(windows), 9, ", t").c_str());  // the caller's order
  none("innermost",                                                         // every dimension has a halo
       "t[c: 9,h: 9] = x[c,h] * 2\ny[c: 9,h: 9] = sum[r: 3] t[c+r-1,h+r-1] * k[r]\nreturn y");
  none("reuse", "t[i: 3] = sum[k: 4] a[i,k]\nu[i: 3] = sum[k: 4] b[i,k]\nreturn t, u");
  none("merge_scopes",  // t would be a copy of what needs u, which stands behind it
       "t[i: 4] = sum[k: 4] a[i,k] * c[k]\nu[k: 4] = 2 * b[k]\ny[i: 4] = sum[k: 4] p[i,k] * u[k]\nreturn t, "
       "y");
  none("merge_scopes", "t[i: 4] = sum[k: 4] a[i,k]\nu[i: 4] = sum[k: 4] a[i,k] * t[k]\nreturn u");
}

}  // namespace
}  // namespace syno::derive
