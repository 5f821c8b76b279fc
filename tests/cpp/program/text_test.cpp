#include "program/text.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "naive.hpp"
#include "program/builders.hpp"
#include "program/syntax.hpp"
#include "program/verify.hpp"
#include "random_program.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

using Shape = std::vector<std::int64_t>;

ParseOptions sizes(std::map<std::string, std::int64_t, std::less<>> values) {
  ParseOptions options;
  options.sizes = std::move(values);
  return options;
}
ParseOptions shapes(std::map<std::string, Shape, std::less<>> values) {
  ParseOptions options;
  options.shapes = std::move(values);
  return options;
}
Shape shape(const Program& p, std::string_view name) { return shape_of(p, *p.find_tensor(name)); }

template <class E>
std::string message(std::string_view text, const ParseOptions& options = {}) {
  try {
    parse(text, options);
  } catch (const E& error) {
    return error.what();
  } catch (const Error& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error for: " << text;
  return "";
}

TEST(RoundTrip, EveryProgramPrintsAndParsesBack) {
  EXPECT_TRUE(rc::check("parse(to_text(p)) == p", [](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::uint64_t seed = Random(start).fork(i)();
      const Program p = testing::ProgramGenerator(seed)();
      verify(p);
      const std::string text = to_text(p);
      const Program q = parse(text);
      RC_ASSERT(to_text(q) == text);
      RC_ASSERT(q.sizes == p.sizes);
      RC_ASSERT(q.inputs().size() == p.inputs().size());
      for (std::size_t v = 0; v < p.sizes.valuation_count(); ++v) {
        const Program pv = at(p, v), qv = at(q, v);
        const auto inputs = testing::random_inputs(pv, seed);
        const auto expected = interpret(pv, inputs), got = interpret(qv, inputs);
        for (const auto& [name, values] : expected) {
          RC_ASSERT(got.at(name).shape == values.shape);
          for (std::size_t i = 0; i < values.data.size(); ++i)
            RC_ASSERT(testing::same(got.at(name).data[i], values.data[i]));
        }
        const Cost a = cost(p, v), b = cost(q, v);
        RC_ASSERT(a.flops == b.flops && a.params == b.params && a.bytes == b.bytes);
      }
    }
  }));
}

TEST(RoundTrip, EveryBuilderPrintsAndParsesBack) {
  ConvAttributes a;
  a.in_channels = 4;
  a.out_channels = 6;
  a.groups = 2;
  a.in_size = {7, 5};
  a.kernel = {2, 3};
  a.stride = {2, 1};
  a.pad_begin = {1, 0};
  a.pad_end = {0, 2};
  a.bias = true;
  PoolAttributes pooling;
  pooling.in_size = {6};
  pooling.kernel = {3};
  pooling.pad_begin = {1};
  pooling.count_include_pad = false;
  for (const Program& p :
       {conv(a), conv_transposed(a), pool(Pool::Max, pooling), pool(Pool::Average, pooling),
        matmul(2, 3, 4, {2, 1}, true, false), g2bmm(1, 5, 3, 2, 2), softmax({2, 3, 4}, 1),
        layer_norm({2, 3, 4}, 2, 1e-5, true), elementwise(Function::Power, {3, 1}, {2})}) {
    verify(p);
    EXPECT_EQ(to_text(parse(to_text(p))), to_text(p));
  }
}

TEST(ShortForm, AConvolutionFollowsFromItsIterators) {
  const std::string text = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-2] * k[o,c,r,s]";
  const Program p =
      parse(text, sizes({{"n", 1}, {"o", 64}, {"c", 32}, {"h", 56}, {"w", 28}, {"r", 3}, {"s", 5}}));
  EXPECT_EQ(shape(p, "x"), (Shape{1, 32, 56, 28}));
  EXPECT_EQ(shape(p, "k"), (Shape{64, 32, 3, 5}));
  EXPECT_EQ(p.tensor(*p.find_tensor("x")).role, Role::Input);
  EXPECT_EQ(p.tensor(*p.find_tensor("k")).role, Role::Weight);
  EXPECT_EQ(to_short_text(p), text);
}

struct ParsedCase {
  const char* name;
  const char* text;
  std::map<std::string, std::int64_t, std::less<>> sizes;
  std::map<std::string, Shape, std::less<>> shapes;
  std::map<std::string, Shape> expected;
};
void PrintTo(const ParsedCase& c, std::ostream* out) { *out << c.name; }

class Sizing : public ::testing::TestWithParam<ParsedCase> {};
TEST_P(Sizing, ShapesFollow) {
  ParseOptions options;
  options.sizes = GetParam().sizes;
  options.shapes = GetParam().shapes;
  const Program p = parse(GetParam().text, options);
  for (const auto& [name, expected] : GetParam().expected) EXPECT_EQ(shape(p, name), expected) << name;
}
INSTANTIATE_TEST_SUITE_P(
    Inference, Sizing,
    ::testing::Values(
        ParsedCase{"conv_from_shapes",
                   "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
                   {},
                   {{"x", {2, 3, 8, 9}}, {"k", {4, 3, 3, 3}}},
                   {{"y", {2, 4, 8, 9}}}},
        ParsedCase{"stride_two_from_shapes",
                   "y[h] = sum[r] x[2*h+r-1] * k[r]",
                   {},
                   {{"x", {56}}, {"k", {3}}},
                   {{"y", {28}}}},
        ParsedCase{
            "stride_two_odd", "y[h] = sum[r] x[2*h+r-1] * k[r]", {}, {{"x", {7}}, {"k", {3}}}, {{"y", {4}}}},
        ParsedCase{"dilation", "y[h] = sum[r] x[h+2*r-2] * k[r]", {{"h", 10}, {"r", 3}}, {}, {{"x", {10}}}},
        ParsedCase{"even_kernel", "y[h] = sum[r] x[h+r-1] * k[r]", {{"h", 10}, {"r", 4}}, {}, {{"x", {11}}}},
        ParsedCase{"even_kernel_from_shapes",
                   "y[h] = sum[r] x[h+r-1] * k[r]",
                   {},
                   {{"x", {11}}, {"k", {4}}},
                   {{"y", {10}}}},
        ParsedCase{"no_padding", "y[h] = sum[r] x[h+r] * k[r]", {}, {{"x", {10}}, {"k", {3}}}, {{"y", {8}}}},
        ParsedCase{"groups_by_division",
                   "y[n,o,h] = sum[c,r] x[n,o/4*2+c,h+r-1] * k[o,c,r]",
                   {{"n", 1}, {"o", 8}, {"c", 2}, {"h", 5}, {"r", 3}},
                   {},
                   {{"x", {1, 4, 5}}, {"k", {8, 2, 3}}}},
        ParsedCase{"groups_by_iterators",
                   "y[n,g,o,h] = sum[c,r] x[n,g*4+c,h+r-1] * k[g,o,c,r]",
                   {{"n", 1}, {"h", 5}},
                   {{"k", {2, 3, 4, 3}}},
                   {{"x", {1, 8, 5}}, {"y", {1, 2, 3, 5}}}},
        ParsedCase{"a_size_by_name",
                   "y[n,g,h] = sum[c] x[n,g*cg+c,h]",
                   {{"n", 1}, {"g", 2}, {"h", 5}, {"c", 4}, {"cg", 4}},
                   {},
                   {{"x", {1, 8, 5}}}},
        ParsedCase{"remainder_is_exact", "y[i,j] = x[(4*i+j) % 6]", {{"i", 3}, {"j", 2}}, {}, {{"x", {6}}}},
        ParsedCase{"remainder_sharing_an_iterator", "y[i] = x[i - i % 2]", {{"i", 8}}, {}, {{"x", {7}}}},
        ParsedCase{"upsample", "y[h] = x[h/2]", {}, {{"x", {5}}}, {{"y", {10}}}},
        ParsedCase{"rotate", "y[h] = x[(h+1) % 7]", {{"h", 7}}, {}, {{"x", {7}}}},
        ParsedCase{"big_remainder", "y[h] = x[(h+1) % 5000000]", {{"h", 5000000}}, {}, {{"x", {5000000}}}},
        ParsedCase{"flip", "y[h] = x[6-h]", {{"h", 7}}, {}, {{"x", {7}}}},
        ParsedCase{"shape_overrides_the_padding",
                   "y[h] = sum[r] x[h+r-1] * k[r]",
                   {{"h", 10}, {"r", 3}},
                   {{"x", {12}}},
                   {{"x", {12}}, {"y", {10}}}},
        ParsedCase{"through_an_intermediate",
                   "t[i,j] = sum[k] a[i,k]*b[k,j]; y[i,l] = sum[j] t[i,j]*c[j,l]",
                   {},
                   {{"a", {2, 3}}, {"b", {3, 4}}, {"c", {4, 5}}},
                   {{"t", {2, 4}}, {"y", {2, 5}}}},
        ParsedCase{
            "back_from_the_consumer", "t[i] = 2 * index(i); y[j] = t[j]", {{"j", 5}}, {}, {{"t", {5}}}},
        ParsedCase{"two_reads_of_one_dimension", "y[h] = x[h] * x[h+1]", {}, {{"x", {8}}}, {{"y", {7}}}},
        ParsedCase{"gram", "y[i,j] = sum[k] x[i,k] * x[j,k]", {}, {{"x", {4, 3}}}, {{"y", {4, 4}}}},
        ParsedCase{"softmax_in_one_line",
                   "y[i,j] = exp(x[i,j]) / sum[j] exp(x[i,j])",
                   {},
                   {{"x", {4, 3}}},
                   {{"y_1", {4}}}},
        ParsedCase{
            "accumulation", "y[h+r] += x[h] * k[r]", {{"h", 5}, {"r", 3}}, {}, {{"y", {7}}, {"x", {5}}}},
        ParsedCase{"no_dimensions", "y[] = sum[i] x[i] * s[]", {{"i", 3}}, {}, {{"y", {}}, {"s", {}}}},
        ParsedCase{"a_part_of_a_dimension", "y[i: 3] = x[i]", {}, {{"x", {8}}}, {{"y", {3}}}}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(Body, AReductionTakesTheProductOnItsRight) {
  const Program p = parse("y[o] = sum[c] x[c] * w[o,c] + b[o]", shapes({{"w", {2, 3}}}));
  ASSERT_EQ(p.scopes.size(), 2u);
  const auto y = interpret<double>(
      p, {{"x", {{3}, {1, 2, 3}}}, {"w", {{2, 3}, {1, 0, 0, 1, 1, 1}}}, {"b", {{2}, {10, 20}}}});
  EXPECT_EQ(y.at("y").data, (std::vector<double>{11, 26}));
  // Without parentheses the addend is not summed; with them it is, in one scope.
  const Program q = parse("y[o] = sum[c] (x[c] * w[o,c] + b[o])", shapes({{"w", {2, 3}}}));
  EXPECT_EQ(q.scopes.size(), 1u);
}

TEST(Body, AReductionWrittenTwiceIsComputedOnce) {
  const std::string sum = "(b[i] + sum[k] a[i,k] * x[k, j])";
  const Program p =
      parse(fmt::format("y[i,j] = {0} / (1 + exp(-{0}))", sum), sizes({{"i", 2}, {"j", 3}, {"k", 4}}));
  EXPECT_EQ(p.scopes.size(), 2u);
  const Program spaced = parse("y[i] = (sum[k] a[i, k]) * (sum[k] a[i,k])", sizes({{"i", 2}, {"k", 4}}));
  EXPECT_EQ(spaced.scopes.size(), 2u);
  // Other iterators, tensors, ranges, reductions or fills make another sum; so does another iterator of the
  // same name.
  for (const char* other :
       {"y[i,j] = (sum[k] a[i,k]) * (sum[k] a[j,k])", "y[i,j] = (sum[k] a[i,k]) * (sum[k] b[i,k]) * index(j)",
        "y[i,j] = (sum[k] a[i,k]) * (sum[k: 3] a[i,k]) * index(j)",
        "y[i,j] = (sum[k] a[i,k]) * (max[k] a[i,k]) * index(j)",
        "y[i,j] = (sum[k] a[i,k]) * (sum[k] (sum[i] a[i,k])) * index(j)"}) {
    const Program q = parse(other, sizes({{"i", 4}, {"j", 4}, {"k", 4}}));
    EXPECT_GE(q.scopes.size(), 3u) << other;
  }
}

TEST(Body, NestedReductionsSeeTheOuterIterators) {
  const Program p = parse("y[i] = max[j] x[j] * sum[k] w[k,j] - 1", [] {
    ParseOptions options = shapes({{"w", {2, 3}}});
    options.sizes = {{"i", 4}};
    return options;
  }());
  EXPECT_EQ(p.scopes.size(), 3u);
}

struct Value {
  const char* body;
  double expected;  // with i = 2, x = 3, m = -4
};
void PrintTo(const Value& v, std::ostream* out) { *out << v.body; }
class Bodies : public ::testing::TestWithParam<Value> {};
TEST_P(Bodies, BindAsInPython) {
  ParseOptions options = sizes({{"i", 3}});
  options.shapes = {{"x", {1}}, {"m", {1}}};
  const Program p = parse(std::string("y[i] = ") + GetParam().body + " + 0 * x[0] * m[0]", options);
  const auto y = interpret<double>(p, {{"x", {{1}, {3}}}, {"m", {{1}, {-4}}}});
  EXPECT_DOUBLE_EQ(y.at("y").data[2], GetParam().expected);
  const Program again = parse(to_text(p));
  EXPECT_DOUBLE_EQ(interpret<double>(again, {{"x", {{1}, {3}}}, {"m", {{1}, {-4}}}}).at("y").data[2],
                   GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(
    Table, Bodies,
    ::testing::Values(Value{"1 - x[0] - m[0]", 2}, Value{"1 - (x[0] - m[0])", -6}, Value{"-x[0] * m[0]", 12},
                      Value{"x[0] / 2 / 2", 0.75}, Value{"x[0] / (2 / 2)", 3}, Value{"2 ** 3 ** 2", 512},
                      Value{"-2 ** 2", -4}, Value{"(-2) ** 2", 4}, Value{"x[0] * -1", -3}, Value{"1 - -1", 2},
                      Value{"--x[0]", 3}, Value{"-(1)", -1}, Value{"abs(m[0])", 4},
                      Value{"max(x[0], m[0])", 3}, Value{"min(x[0], m[0])", -4}, Value{"(x[0] < m[0])", 0},
                      Value{"(x[0] > m[0])", 1}, Value{"(x[0] >= 3 and m[0] != 3)", 1},
                      Value{"(x[0] == 2 or m[0] <= -5)", 0}, Value{"select(i == 2, 5, 6)", 5},
                      Value{"index(i % 2 + 7 / 2)", 3}, Value{"i * 0.5", 1}, Value{"ratio(-1, 3) * 3", -1},
                      Value{"1e-3 * 1000", 1}, Value{"2.5e2", 250}, Value{"relu(m[0])", 0},
                      Value{"sqrt(x[0] + 1)", 2}, Value{"rsqrt(x[0] + 1)", 0.5}, Value{"exp(0)", 1},
                      Value{"log(1)", 0}, Value{"tanh(0)", 0}, Value{"sigmoid(0)", 0.5}, Value{"erf(0)", 0},
                      Value{"gelu(0)", 0}, Value{"m[5] fill 7", 7}, Value{"m[2*i] fill 1 / 2", 0.5},
                      Value{"pow(x[0], 2)", 9}, Value{"floor(-1.5)", -2}, Value{"ceil(-1.5)", -1},
                      Value{"round(-1.5) + round(2.5)", 0}, Value{"trunc(-1.5)", -1}, Value{"sin(0)", 0},
                      Value{"cos(0)", 1}, Value{"atan(0)", 0}, Value{"fmod(-7, 4)", -3}));

TEST(Body, FillsReachTheEdges) {
  ParseOptions options = sizes({{"r", 3}});
  options.shapes = {{"x", {4}}};
  const Program p = parse("y[h] = max[r] x[2*h+r-1] fill -inf", options);
  const auto y = interpret<double>(p, {{"x", {{4}, {-1, -2, -3, -4}}}});
  EXPECT_EQ(y.at("y").data, (std::vector<double>{-1, -2}));
}

TEST(Statements, LinesJoinWhereTheyCannotEnd) {
  const Program p = parse("# a comment\ny[i] = x[i] *  # another\n  2\n  + 1\n\nz[i] = y[i]; return z, y",
                          sizes({{"i", 2}}));
  EXPECT_EQ(p.scopes.size(), 2u);
  EXPECT_EQ(p.outputs.size(), 2u);
}

TEST(Numbers, AreExactWhereWhatIsLeftOfThemFits) {
  const auto parsed = [](const std::string& text) { return syntax::parse_decimal(text); };
  EXPECT_EQ(parsed("0.00043402777777777775"), Rational(1736111111111111, 4'000'000'000'000'000'000));
  EXPECT_EQ(parsed("12"), Rational(12));
  EXPECT_EQ(parsed("0.50"), Rational(1, 2));
  EXPECT_EQ(parsed("2.50e1"), Rational(25));
  EXPECT_EQ(parsed("1E-5"), Rational(1, 100'000));
  EXPECT_EQ(parsed("1e+18"), Rational(1'000'000'000'000'000'000));
  EXPECT_EQ(parsed("9223372036854775807"), Rational(std::numeric_limits<std::int64_t>::max()));
  EXPECT_EQ(parsed("0.0e999"), Rational(0));
  EXPECT_EQ(parsed("1000000000000000000000000e-24"), Rational(1));
  for (const char* wide : {"9223372036854775808", "1e19", "1e-19", "1e999", "1e-999", "1e1001",
                           "0.1234567890123456789012", "12345678901234567890123456789012345678901234567890"})
    EXPECT_FALSE(parsed(wide)) << wide;
  Random random(3);
  int exact = 0;
  for (int n = 0; n < 20'000; ++n) {
    const auto numerator =
        static_cast<std::int64_t>(random.below(std::uint64_t{1} << (1 + random.below(53))));
    const std::int64_t twos = std::int64_t{1} << random.below(30), fives = random.below(2) == 0 ? 1 : 15625;
    const double number = static_cast<double>(numerator) / static_cast<double>(twos * fives);
    const auto found = parsed(fmt::format("{}", number));
    if (!found) continue;
    EXPECT_DOUBLE_EQ(found->to_double(), number);  // numerator and denominator are rounded first
    ++exact;
  }
  EXPECT_GT(exact, 10'000);
}

TEST(FullForm, TheExampleOfTheDocumentationParses) {
  const Program p = parse(R"(
    size N, C, H : primary = (1, 64, 8), (1, 128, 4); size k : coefficient = 3, 3
    input x[N, C, H]; weight w[C, k]; constant t[2] = {1, 1/2}
    y[n: N, h: -1..H+1] = sum[c: C, r: k] x[n, c, inside(h + r - k/2, H)] * w[c, r]
    z[n: N] = max[h: H] y[n, h] fill -inf
    dx[N, C, H] : [n: N, h: H][n, 0, h + 1] += z[n] * t[1]
    return y, dx
  )");
  EXPECT_EQ(p.sizes.valuation_count(), 2u);
  EXPECT_EQ(to_text(parse(to_text(p))), to_text(p));
}

TEST(FullForm, SizesMayGetTheirValuesFromTheCaller) {
  const std::string text = "size N : primary; size k : coefficient; input x[N]; y[i: N] = sum[r: k] x[i + r]";
  EXPECT_EQ(parse(text).sizes.valuation_count(), 0u);
  EXPECT_EQ(shape_of(at(parse(text, sizes({{"N", 5}, {"k", 2}})), 0), TensorId{0}), (Shape{5}));
}

TEST(FullForm, SingleIteratorsNeedNoRange) {
  const Program p = parse("size N, K : primary = (2, 3); input a[N, K]; y[n] = sum[k] a[n,k] * b[k]");
  EXPECT_EQ(to_text(p),
            "size N, K : primary = (2, 3)\ninput a[N, K]\nweight b[K]\ny[n: N] = sum[k: K] a[n, k] * "
            "b[k]\nreturn y\n");
}

TEST(Loops, ShowEveryScope) {
  const Program p =
      parse("t[i] = mean[j] x[i,j]; u[i] = max[j] x[i,j]; z[i + 1] += sum[j] x[i,j]; y[i] = t[i] * u[i]",
            shapes({{"x", {2, 3}}}));
  EXPECT_EQ(to_loops(p), R"(for i in range(2):
  t[i] = 0
  for j in range(3):
    t[i] += x[i, j]
  t[i] /= (3)
for i in range(2):
  u[i] = -inf
  for j in range(3):
    u[i] = max(u[i], x[i, j])
z[...] = 0
for i in range(2):
  total = 0
  for j in range(3):
    total += x[i, j]
  z[i + 1] += total
for i in range(2):
  y[i] = t[i] * u[i]
)");
  EXPECT_NE(to_loops(parse("y[i: -1..3] = x[i + 1]")).find("for i in range(-1, 3):"), std::string::npos);
}

TEST(Roles, FollowTheOptions) {
  const std::string text = "y[i] = a[i] * b[i] * c[i]";
  const auto roles = [&](const ParseOptions& options) {
    std::string result;
    const Program p = parse(text, options);
    for (const TensorId id : p.inputs()) result += p.tensor(id).role == Role::Weight ? 'w' : 'i';
    return result;
  };
  ParseOptions options = sizes({{"i", 2}});
  EXPECT_EQ(roles(options), "iww");
  options.weights = {"a"};
  EXPECT_EQ(roles(options), "wii");
  options.weights = {};
  options.data = {"b", "c"};
  EXPECT_EQ(roles(options), "wii");
  options.data = {};
  options.no_weights = true;
  EXPECT_EQ(roles(options), "iii");
  options.no_weights = false;
  options.weights = {"q"};
  EXPECT_THROW(parse(text, options), UnknownName);
  options.weights = options.data = {"a"};
  EXPECT_THROW(parse(text, options), SpecError);
}

TEST(Errors, ACaretPointsAtThePlace) {
  EXPECT_EQ(
      message<ParseError>("y[i] = x[i] $ 2"),
      "[parse] this character has no meaning here (line 1, column 13)\n  y[i] = x[i] $ 2\n              ^");
}

struct Wrong {
  const char* text;
  const char* part;  // of the message
};
void PrintTo(const Wrong& w, std::ostream* out) { *out << w.text; }
class Malformed : public ::testing::TestWithParam<Wrong> {};
TEST_P(Malformed, IsAParseErrorThatSaysWhat) {
  const std::string text = message<ParseError>(GetParam().text, sizes({}));
  EXPECT_NE(text.find(GetParam().part), std::string::npos) << text;
  EXPECT_NE(text.find('^'), std::string::npos) << text;
}
INSTANTIATE_TEST_SUITE_P(
    Table, Malformed,
    ::testing::Values(
        Wrong{"", "no statement"}, Wrong{"y", "expected `[`"}, Wrong{"y[i", "expected"},
        Wrong{"y[i] = ", "expected a number"}, Wrong{"y[i+1] = x[i]", "expected `]`"},
        Wrong{"y[i,i] = x[i]", "twice"}, Wrong{"y[i] = x[j]", "'j' is bound by no reduction"},
        Wrong{"y[i] = x[i/j]", "'j' is neither"}, Wrong{"y[i] = sum[k,k] x[k]", "twice"},
        Wrong{"y[i] = x[i] % 2", "index(i % 4)"}, Wrong{"y[i] = x[i] ^ 2", "**"},
        Wrong{"y[i] = foo(x[i])", "function"}, Wrong{"y[i] = sum(x[i])", "in brackets"},
        Wrong{"y[i] = exp(x[i], 2)", "takes 1"}, Wrong{"y[i] = max(x[i])", "takes 2"},
        Wrong{"y[i] = x[i] < 1 < 2", "do not chain"}, Wrong{"y[i] = y[i] + x[i]", "before it is written"},
        Wrong{"y[i] = x[i]; y[i] = x[i]", "written twice"},
        Wrong{"y[i] = x[i]; x[i] = y[i]", "before it is written"},
        Wrong{"y[i] = x[i] * x[i,i]", "dimensions"}, Wrong{"sum[i] = x[i]", "word of the language"},
        Wrong{"y[i] = x[i*i]", "product"}, Wrong{"y[i] = x[i / 0]", "positive size"},
        Wrong{"y[i] = x[1.5]", "expected"}, Wrong{"y[i] = x[i] 2", "expected an operator"},
        Wrong{"y[i] = x", "x[...]"}, Wrong{"return y", "no statement"},
        Wrong{"y[i: 2] = x[i]; return z", "no tensor 'z'"}, Wrong{"y[i: 2] = x[i]; return x", "not computed"},
        Wrong{"y[i] = 123456789012345678901234567890", "64 bits"}, Wrong{"y[i] = ratio(1, 0)", "denominator"},
        Wrong{"size N : big = 3; y[i: N] = 1", "primary"},
        Wrong{"size N = 0; y[i: N] = 1", "positive integer"},
        Wrong{"size N, N = (1, 2); y[i: N] = 1", "twice"},
        Wrong{"size N = 1, 2; size M = 3; y[i: N] = 1", "valuations"},
        Wrong{"size N = 1; size M; y[i: N] = 1", "some have none"},
        Wrong{"input x[2]; input x[2]; y[i: 2] = x[i]", "twice"},
        Wrong{"constant t[2] = {1, 1/0}; y[i: 2] = t[i]", "denominator"}, Wrong{"y[] += x[0]", "accumulated"},
        Wrong{"y[i: 2] = x[i] @", "expected an operator"}, Wrong{"y[i: 2..j] = x[i]", "'j' is neither"}));

TEST(Errors, MissingAndContradictorySizesAreNamed) {
  const std::string conv = "y[o,h] = sum[c,r] x[c,h+r-1] * k[o,c,r]";
  EXPECT_NE(message<ShapeError>(conv).find("o, h, c, r"), std::string::npos);
  EXPECT_NE(message<ShapeError>(conv, shapes({{"x", {4, 5}}})).find("the size of o, h, r is"),
            std::string::npos);
  EXPECT_NE(message<ShapeError>(conv, shapes({{"x", {4, 5}}, {"k", {2, 3, 3}}})).find("'c' has size"),
            std::string::npos);
  ParseOptions options = shapes({{"x", {4, 5}}, {"k", {2, 4, 3}}});
  options.sizes = {{"c", 8}};
  EXPECT_NE(message<ShapeError>(conv, options).find("'c' has size 8"), std::string::npos);
  EXPECT_NE(message<ShapeError>(conv, shapes({{"x", {4, 5, 6}}, {"k", {2, 4, 3}}})).find("3 dimensions"),
            std::string::npos);
  EXPECT_NE(
      message<ShapeError>("y[h] = sum[r] x[h+r] * k[r]", shapes({{"x", {2}}, {"k", {3}}})).find("less than"),
      std::string::npos);
  EXPECT_THROW(parse(conv, shapes({{"z", {4}}})), UnknownName);
  EXPECT_THROW(parse("y[i] = x[i]", sizes({{"i", 2}, {"q", 3}})), UnknownName);
  EXPECT_THROW(parse("y[i] = x[i]", sizes({{"i", 0}})), ShapeError);
  EXPECT_THROW(parse("y[i] = x[i]", shapes({{"x", {-1}}})), ShapeError);
  EXPECT_THROW(parse("y[i] = x[i-5]", sizes({{"i", 2}})), ShapeError);
  EXPECT_THROW(parse("size N : primary = 4; input x[N]; y[i] = x[i]", sizes({{"N", 5}})), ShapeError);
}

TEST(Errors, DeepNestingIsRefusedNotACrash) {
  for (const std::string& deep :
       {"y[i: 2] = " + std::string(100000, '(') + "1", "y[i: 2] = " + std::string(100000, '-') + "1",
        "y[i: 2] = x[" + std::string(100000, '(') + "i", std::string(100000, '[')}) {
    EXPECT_THROW(parse(deep), ParseError);
  }
  std::string chain = "y[i: 2] = 1";
  for (int i = 0; i < 100000; ++i) chain += " + 1";
  EXPECT_THROW(parse(chain), ParseError);
  std::string indices = "y[i: 2] = x[i";
  for (int i = 0; i < 100000; ++i) indices += " + i";
  EXPECT_THROW(parse(indices + "]"), ParseError);
  std::string reductions = "y[i: 2] = ";
  for (int i = 0; i < 5000; ++i) reductions += "sum[k: 2] ";
  EXPECT_THROW(parse(reductions + "1"), ParseError);
}

// Every text either parses or is refused with a typed error.
void survives(const std::string& text) {
  try {
    const Program p = parse(text, sizes({{"i", 3}, {"n", 2}}));
    RC_ASSERT(to_text(parse(to_text(p))) == to_text(p));
  } catch (const UnknownName&) {
  } catch (const Error&) {
  }
}

TEST(Fuzz, RandomTokens) {
  const std::vector<std::string> words = {"y",        "x",      "i",       "n",
                                          "[",        "]",      "(",       ")",
                                          "{",        "}",      "=",       "+=",
                                          "+",        "-",      "*",       "/",
                                          "%",        ":",      ";",       ",",
                                          "..",       "<",      "==",      "sum",
                                          "max",      "select", "index",   "inside",
                                          "fill",     "inf",    "size",    "input",
                                          "constant", "return", "primary", "2",
                                          "0",        "1.5",    "\n",      "@",
                                          "y[i] = ",  "x[i]",   "sum[n]",  "9999999999999999999",
                                          "1e400",    "**",     "and",     "#",
                                          "\t"};
  EXPECT_TRUE(rc::check("tokens", [&] {
    std::string text;
    for (const auto word :
         *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, words.size())))
      text += words[word] + (word % 3 == 0 ? " " : "");
    survives(text);
  }));
}

TEST(Fuzz, BrokenPrograms) {
  EXPECT_TRUE(rc::check("one edit in a program's text", [](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      const std::uint64_t seed = Random(start).fork(i)();
      std::string text = to_text(testing::ProgramGenerator(seed)());
      Random random(seed);
      for (std::uint64_t edits = 1 + random.below(3); edits > 0 && !text.empty(); --edits) {
        const std::size_t at = random.below(text.size());
        switch (random.below(3)) {
          case 0:
            text.erase(at, 1 + random.below(4));
            break;
          case 1:
            text.insert(at, 1, static_cast<char>(random.below(256)));
            break;
          default:
            text[at] = text[random.below(text.size())];
            break;
        }
      }
      try {
        parse(text);
      } catch (const Error&) {
      }
    }
  }));
}

}  // namespace
}  // namespace syno::program
