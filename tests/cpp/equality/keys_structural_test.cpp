// The structural key and fusion into one scope.
#include <gtest/gtest.h>

#include <map>

#include "equality/keys.hpp"
#include "program/builders.hpp"
#include "program/interpret.hpp"
#include "program/text.hpp"
#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::equality {

using namespace program;

namespace {

Hash128 key(std::string_view text) { return structural_key(parse(text)); }

constexpr const char* kConv =
    "size N, C, H : primary = (1, 8, 12), (2, 16, 6); size k : coefficient = 3, 3\n"
    "input x[N, C, H]; weight w[C, C, k]\n"
    "y[n: N, o: C, h: H] = sum[c: C, r: k] x[n, c, h + r - k/2] * w[o, c, r]\nreturn y";

TEST(StructuralKey, IgnoresNamesOrdersAndHowAnIndexIsWritten) {
  const char* const same[] = {
      "size N, C, H : primary = (1, 8, 12), (2, 16, 6); size k : coefficient = 3, 3\n"
      "input image[N, C, H]; weight kernel[C, C, k]\n"
      "out[a: N, b: C, d: H] = sum[t: k, e: C] kernel[b, e, t] * image[a, e, d - k/2 + t]\nreturn out",
      "size N, C, H : primary = (1, 8, 12), (2, 16, 6); size k : coefficient = 3, 3\n"
      "input x[N, C, H]; weight w[C, C, k]\n"
      "y[n: N, o: C, h: H] = sum[c: C, r: k] x[n, (c*k + r) / k, h + (c*k + r) % k - k/2] * w[(o + C) % C, "
      "c, r]\nreturn y",
      "size A, B, D : primary = (1, 8, 12), (2, 16, 6); size q : coefficient = 3, 3\n"
      "input x[A, B, D]; weight w[B, B, q]\n"
      "y[n: A, o: B, h: D] = sum[c: B, r: q] x[n, c, h + r - q/2] * w[o, c, r]\nreturn y",
  };
  for (const char* text : same) EXPECT_EQ(key(kConv), key(text)) << text;
}

TEST(StructuralKey, SeesWhatMatters) {
  std::map<Hash128, std::string> seen;
  const char* const table[] = {
      kConv,
      // another valuation; other roles; another order of inputs
      "size N, C, H : primary = (1, 8, 12), (2, 16, 8); size k : coefficient = 3, 3\n"
      "input x[N, C, H]; weight w[C, C, k]\n"
      "y[n: N, o: C, h: H] = sum[c: C, r: k] x[n, c, h + r - k/2] * w[o, c, r]\nreturn y",
      "size N, C, H : primary = (1, 8, 12), (2, 16, 6); size k : coefficient = 3, 3\n"
      "input x[N, C, H]; input w[C, C, k]\n"
      "y[n: N, o: C, h: H] = sum[c: C, r: k] x[n, c, h + r - k/2] * w[o, c, r]\nreturn y",
      "size N, C, H : primary = (1, 8, 12), (2, 16, 6); size k : coefficient = 3, 3\n"
      "weight w[C, C, k]; input x[N, C, H]\n"
      "y[n: N, o: C, h: H] = sum[c: C, r: k] x[n, c, h + r - k/2] * w[o, c, r]\nreturn y",
      // another layout of the weight is another program (and the same operator)
      "size N, C, H : primary = (1, 8, 12), (2, 16, 6); size k : coefficient = 3, 3\n"
      "input x[N, C, H]; weight w[C, C, k]\n"
      "y[n: N, o: C, h: H] = sum[c: C, r: k] x[n, c, h + r - k/2] * w[c, o, r]\nreturn y",
      "size N, C, H : primary = (1, 8, 12), (2, 16, 6); size k : coefficient = 3, 3\n"
      "input x[N, C, H]; weight w[C, C, k]\n"
      "y[n: N, o: C, h: H] = max[c: C, r: k] x[n, c, h + r - k/2] * w[o, c, r]\nreturn y",
      "size N, C, H : primary = (1, 8, 12), (2, 16, 6); size k : coefficient = 3, 3\n"
      "input x[N, C, H]; weight w[C, C, k]\n"
      "y[n: N, o: C, h: H] = sum[c: C, r: k] x[n, c, h + r - k/2] fill 1 * w[o, c, r]\nreturn y",
      "input x[4, 4]\ny[i: 4] = sum[j: 4] x[i, j]\nreturn y",
      "input x[4, 4]\ny[i: 4] = sum[j: 4] x[j, i]\nreturn y",
      "input x[4, 4]\ny[i: 4] = sum[j: 4] x[i, 3 - j]\nreturn y",
      "input x[4, 4]\ny[i: 4] = sum[j: 4] (x[i, j] - x[j, i])\nreturn y",
      "input x[4, 4]\ny[i: 4] = sum[j: 4] (x[j, i] - x[i, j])\nreturn y",
      "input x[4, 4]\ny[i: 4, j: 4] = exp(x[i, j])\nreturn y",
      "input x[4, 4]\ny[i: 4, j: 4] = tanh(x[i, j])\nreturn y",
      "input x[4, 4]; constant t[2] = {1, 2}\ny[i: 4, j: 4] = x[i, j] * t[i % 2]\nreturn y",
      "input x[4, 4]; constant t[2] = {1, 3}\ny[i: 4, j: 4] = x[i, j] * t[i % 2]\nreturn y",
  };
  for (const char* text : table) {
    const auto [place, is_new] = seen.try_emplace(key(text), text);
    EXPECT_TRUE(is_new) << text << "\nhas the key of\n" << place->second;
  }
}

TEST(StructuralKey, TiesBetweenSumsAreTriedInEveryOrder) {
  // i and j look alike until the other is named.
  EXPECT_EQ(key("input x[3, 3, 3]\ny[] = sum[i: 3, j: 3, k: 3] x[i, j, k] * x[j, k, i]\nreturn y"),
            key("input x[3, 3, 3]\ny[] = sum[k: 3, i: 3, j: 3] x[k, i, j] * x[j, k, i]\nreturn y"));
  EXPECT_NE(key("input x[3, 3, 3]\ny[] = sum[i: 3, j: 3, k: 3] x[i, j, k] * x[j, k, i]\nreturn y"),
            key("input x[3, 3, 3]\ny[] = sum[i: 3, j: 3, k: 3] x[i, j, k] * x[j, i, k]\nreturn y"));
}

TEST(StructuralKey, CommutingTermsMayBeGroupedInAnyWay) {
  EXPECT_EQ(key("input x[4]; input z[4]\ny[i: 4] = x[i] + (z[i] + x[i]) * 2 + 1\nreturn y"),
            key("input x[4]; input z[4]\ny[i: 4] = (1 + 2 * (x[i] + z[i])) + x[i]\nreturn y"));
}

TEST(StructuralKey, AStagedProgramHasAnotherKey) {
  const char* staged =
      "input x[4, 6]; weight w[6]; weight v[4]\nt[i: 4] = sum[j: 6] x[i, j] * w[j]\n"
      "y[] = sum[i: 4] t[i] * v[i]\nreturn y";
  const Program program = parse(staged);
  EXPECT_NE(structural_key(program), structural_key(one_scope_form(program)));
  EXPECT_EQ(operator_key(program), operator_key(one_scope_form(program)));
}

/// Values of every output at random inputs, in exact arithmetic.
std::map<std::string, Values<Rational>> run(const Program& program, std::uint64_t seed) {
  Random random(seed);
  std::map<std::string, Values<Rational>> inputs;
  for (const TensorId id : program.inputs()) {
    Values<Rational> values;
    values.shape = shape_of(program, id);
    std::int64_t count = 1;
    for (const std::int64_t extent : values.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i)
      values.data.emplace_back(static_cast<std::int64_t>(random.below(19)) - 9);
    inputs[program.tensor(id).name] = values;
  }
  return interpret(program, inputs);
}

TEST(OneScopeForm, ComputesTheSame) {
  const char* const table[] = {
      "input x[4, 6]; weight w[6]; weight v[4]\nt[i: 4] = sum[j: 6] x[i, j] * w[j]\ny[] = sum[i: 4] t[i] * "
      "v[i]\nreturn y",
      // read outside: the intermediate ends where the input would go on
      "input x[9]; weight w[3]\nt[i: 5] = x[i + 2]\ny[h: 7] = sum[r: 3] t[h + r - 1] * w[r]\nreturn y",
      "input x[9]; weight w[3]\nt[i: -2..4] = sum[r: 3] x[i + r + 2] * w[r]\ny[h: 7] = sum[s: 2] t[h + s - "
      "3]\nreturn y",
      // an index of the intermediate that its body does not use still bounds it
      "input x[3]\nt[i: 3, j: 2] = x[i]\ny[h: 5] = sum[s: 3] t[s, h - 1]\nreturn y",
      // read twice, in one product
      "input x[4]; weight w[4, 4]\nt[i: 4] = sum[j: 4] x[j] * w[i, j]\ny[i: 4] = sum[k: 4] t[i] * "
      "t[k]\nreturn y",
      // three stages, two outputs
      "input x[4, 6]; weight w[6]\na[i: 4] = sum[j: 6] x[i, j] * w[j]\nb[i: 4] = sum[k: 3] a[i + k - 1]\n"
      "c[i: 2] = b[2*i] * a[i]\nreturn b, c",
      "input x[4, 6]\na[i: 4, j: 6] = -2 * x[3 - i, j]\nb[i: 4] = sum[k: 3] exp(a[i, k])\nreturn b",
  };
  for (const char* text : table) {
    const Program program = parse(text);
    const Program fused = one_scope_form(program);
    EXPECT_EQ(fused.scopes.size(), program.outputs.size());
    if (std::string_view(text).find("exp") != std::string_view::npos) continue;  // not rational
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const auto expected = run(program, seed), actual = run(fused, seed);
      ASSERT_EQ(expected.size(), actual.size());
      for (const auto& [name, values] : expected)
        EXPECT_EQ(values.data, actual.at(name).data) << text << to_text(fused);
    }
  }
}

TEST(OneScopeForm, SaysWhatCannotBeFused) {
  const auto message = [](const char* text) -> std::string {
    try {
      one_scope_form(parse(text));
    } catch (const VerifyError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("input x[4, 4]\nt[i: 4] = max[j: 4] x[i, j]\ny[] = sum[i: 4] t[i]\nreturn y")
                .find("'t' cannot be put into 'y'"),
            std::string::npos);
  EXPECT_NE(message("input x[4, 4]\nt[i: 4] = sum[j: 4] x[i, j]\ny[i: 4] = exp(t[i])\nreturn y")
                .find("sum of products"),
            std::string::npos);
  EXPECT_NE(message("input x[4]\nt[i: 4] = exp(x[i])\ny[] = sum[i: 4] t[i]\nreturn y")
                .find("not a product of reads"),
            std::string::npos);
}

}  // namespace
}  // namespace syno::equality
