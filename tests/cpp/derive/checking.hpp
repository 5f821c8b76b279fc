// Programs to rewrite, by lot, and whether two programs compute the same.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "derive/rewrite.hpp"
#include "lower/compacted.hpp"
#include "lower/derivative.hpp"
#include "program/interpret.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"
#include "support/random.hpp"
#include "whole/random_chain.hpp"

namespace syno::derive::testing {

/// How many steps a test applies: `SYNO_TEST_APPLICATIONS`, else as many as it asks for.
inline std::int64_t applications(std::int64_t few) {
  const char* text = std::getenv("SYNO_TEST_APPLICATIONS");
  return text == nullptr ? few : std::max<std::int64_t>(few, std::atoll(text));
}

template <class T>
std::map<std::string, program::Values<T>> random_inputs(const Program& p, Random random) {
  std::map<std::string, program::Values<T>> inputs;
  for (const TensorId id : p.inputs()) {
    program::Values<T> values{program::shape_of(p, id), {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : values.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i)
      values.data.push_back(T(static_cast<std::int64_t>(random.below(7)) - 3));
    inputs.emplace(p.tensor(id).name, std::move(values));
  }
  return inputs;
}

inline bool close(const Rational& a, const Rational& b) { return a == b; }
inline bool close(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-8 * std::max(1.0, std::abs(a));
}

template <class T>
std::string difference_in(const Program& before, const Program& after, const Random& random) {
  const auto wanted = program::interpret(before, random_inputs<T>(before, random));
  const auto got = program::interpret(after, random_inputs<T>(after, random));
  if (wanted.size() != got.size()) return "other outputs";
  for (const auto& [name, values] : wanted) {
    const auto found = got.find(name);
    if (found == got.end() || found->second.shape != values.shape) return "no output " + name;
    for (std::size_t i = 0; i < values.data.size(); ++i)
      if (!close(values.data[i], found->second.data[i])) return fmt::format("element {} of {}", i, name);
  }
  return {};
}

inline Program applied(const Rewrite& row, Program program, const Site& site) {
  derive::apply(row, program, site);
  return program;
}

/// Without tensors that nobody computes any more.
inline Program tidy(const Program& p) {
  const auto inputs = p.inputs();
  return lower::compacted(p, {inputs.begin(), inputs.end()});
}

/// Whether values are compared, so that a rounding error may decide.
inline bool compares(const Program& p) {
  const auto index = [&](ScalarId id) { return p.scalar(id).kind == ScalarKind::Index; };
  return std::any_of(p.scopes.begin(), p.scopes.end(), [&](const Scope& scope) {
    return program::any_scalar(p, scope.body, [&](const Scalar& s) {
      return s.kind == ScalarKind::Binary && s.function >= Function::Less &&
             s.function <= Function::NotEqual && !index(s.a) && !index(s.b);
    });
  });
}

/// Where two programs differ; empty where they do not. Exactly, but where a function is not rational or
/// numbers leave 64 bits.
inline std::string difference(const Program& before, const Program& rewritten, const Random& random) {
  const Program after = tidy(rewritten);
  program::verify(after);
  try {
    return difference_in<Rational>(before, after, random);
  } catch (const Error&) {
    return compares(before) ? "" : difference_in<double>(before, after, random);
  }
}

inline std::string text_of(const Rewrite& row, const Site& site) {
  return fmt::format("{} at {} {} {} [{}]", row.name, site.scope, site.iterator, site.other,
                     fmt::join(site.numbers, ","));
}

/// What the rows are about, at sizes by lot; random chains hold the other kinds of programs.
inline std::string about_a_row(Random& random) {
  static const std::vector<std::string> kTexts{
      "y[h: {a}] = sum[c: {b},r: {m}] x[c,(h+{t}-r)/{m} + inside((h+{t}-r)%{m},1)] * w[c,r]",
      "y[h: {a}] = sum[c: {b},r: 5] x[c,(h+{t}+r)/{m} + inside((h+{t}+r)%{m},1)] * w[r,c]",
      "y[h: {a}] = sum[r: 5] w[r] * x[(2*h+5*r)/3 + inside((2*h+5*r)%3,1)]",
      "y[c: {b},h: 3,w: 7] = sum[d: {a}] x[d,h,(w+{m})%7] * k[c,d,(w+{m})%7]",
      "y[c: {b},h: 12] = sum[d: {a}] x[d,4*(h/4)+(h+3)%4] * k[c,d,(h+3)%4]",
      "y[i: {a},j: {b}] = exp(x[i,j]) / sum[k: {b}] exp(x[i,k])",
      "s[i: {a}] = sum[k: {b}] exp(x[i,k]) * z[k]\ny[i: {a}, j: {b}] = s[i] * exp(x[i,j])\nreturn y",
      "y[i: {a},j: {b}] = sum[k: {m}] a[i,k] * b[j,k] / (3 + j)",
      "y[i: {a},j: {b}] = sum[k: {m}] -(g[i] * a[i,k]) * b[k,j]",
      "y[i: {a},j: {b}] = mean[k: {m}] s[] * (a[i,k] + b[j,k])",
      "t[i: {a}] = relu(x[i-1]) + i\nu[i: {a}] = t[i+1] * t[{a}-i]\ny[j: {b}] = sum[i: {a}] u[i+j-1] * "
      "2\nreturn y",
      "t[c: 8,h: {a}] = x[c,h] * 2\ny[c: 8,h: {b}] = sum[r: {m}] t[c,h+r-1] * k[r]\nreturn y",
      "t[p: 2,c: 8,h: {a}] = sum[r: {m}] x[c,{m}*h+r-1] * g[p,r]\nu[p: 2,o: 9,h: {a}] = sum[c: 8] t[p,c,h] * "
      "w[p,o,c]\nv[o: 9,h: {b}] = sum[p: 2] u[p,o,h/{m}] * z[p,h%{m}]\ny[o: 9,h: {b}] = relu(v[o,h] - "
      "e[o])\nreturn y",
      "t[i: {a},j: {b}] = x[i,j] * 2 - z[j]\ny[j: {b}] = max[i: {a}] (t[i,j+1] fill -9)\nreturn y, t",
  };
  static const std::vector<std::string> kLinear{
      "y[o: 2,h: {a},w: {b}] = sum[c: 2,r: 3,s: 3] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
      "y[n: 2,o: 2,h: {a}] = sum[c: 2,r: {n}] x[n,c,{m}*h+r-{t}] * k[o,c,r]",
      "y[o: 2,h: {a},w: {b}] = sum[c: 2,r: 3,s: 2] x[c,h+{m}*r-{m},w+s] * k[o,c,r,s]",
      "y[g: 2,o: 2,h: {a}] = sum[c: 2,r: {n}] x[2*g+c,h+r-{t}] * k[g,o,c,r]",
      "y[o: 4,h: {a}] = sum[c: 2,r: 3] x[2*(o/2)+c,h+r-1] * k[o,c,r]",
      "y[d: 3,h: {b},w: 3] = sum[q: 2,r: 2,s: 2] x[d+q,h+r,w+s-1] * k[q,r,s]",
      "y[o: 2,h: {a}] = sum[c: 2,r: {n}] x[c,h+{t}-r] * k[c,o,r]",
      "y[m: {a},w: {n}] = sum[k: 3] p[m,k] * q[m+{m}*w-{m},k]",
      "y[i: {a},j: {b}] = sum[k: 4] p[i,k] * q[k,j]",
      "y[i: 8,b: {m},j: 10] = sum[k: 8] p[b,i,k] * q[b,j,k]",
      "y[i: 8,j: 8] = sum[k: 8] p[i,k] * q[k,j]",
      "y[i: 8,j: 12] = sum[k: 8,l: {m}] p[i,k] * q[l,k+1,j] * z[l] * w[k]",
      "t[i: {a}] = max[r: 3] x[i+r-1] fill -inf\ny[i: {a}] = sum[r: {n}] t[i+r-1] * k[r]\nreturn y",
      "t[i: {a}] = max[r: {n}] x[2*i+r-{t}] fill -inf\ny[i: {a}] = sum[r: 3] t[i+r-1] * k[r]\nreturn y",
      "y[b: 2,i: 4,j: {m}] = sum[k: {a}] p[b,i,k] * q[b,j,k]",
      "t[o: 2,h: {a}] = sum[c: 2,r: 3] x[c,h+r-1] * k[o,c,r]\nu[o: 2,h: {a}] = relu(t[o,h])\n"
      "y[o: 2,h: {a}] = sum[c: 2,r: 3] u[c,h+r-1] * l[o,c,r]\nreturn y",
      "t[r: {n},h: {a}] = sum[c: 2] x[c,h+r-1] * k[c,r]\ny[h: {a}] = sum[r: {n}] t[r,h+r-2]\nreturn y",
      "t[r: {n},h: {a}] = sum[c: 2] x[c,{m}*h+2*r] * k[c,r]\ny[h: {b}] = mean[r: {n}] (t[r,h+1] fill {t})\n"
      "return y",
      "t[o: {m},h: {a}] = sum[c: {b}] x[c,h] * k[o,c]\nu[o: {n},h: {a}] = sum[c: {b}] x[c,h] * l[o,c]\n"
      "y[o: {m},h: {a}] = t[o,h] * sum[p: {n}] u[p,h-1] * w[o,p]\nreturn y",
      "t[i: {a},j: {m}] = sum[c: {b}] x[i,c] * k[c,j]\nu[i: {a},j: {m}] = sum[d: {b}] z[i,d] * l[d,j]\n"
      "v[i: {a},j: {m}] = sum[c: {b}] x[i,c] * k[c,j]\ny[i: {a},j: {m}] = t[i,j] * u[i,j] - v[i,j+1]\n"
      "return y, t",
      "y[h: {a}] = max[r: {n},c: {b}] x[c,h+r-1] + h",
      "y[h: {a}] = sum[r: {n},c: {b}] x[c,h+r-1] * (2 + r) * k[c,r] * g[c]",
  };
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1)));
  };
  const auto& texts = random.below(2) == 0 ? kTexts : kLinear;
  const std::int64_t m = draw(2, 4);
  return fmt::format(fmt::runtime(texts[random.below(texts.size())]), fmt::arg("a", draw(1, 9)),
                     fmt::arg("b", draw(1, 6)), fmt::arg("m", m), fmt::arg("t", draw(0, 3)),
                     fmt::arg("n", draw(2, 5)));
}

inline Program random_program(Random& random) {
  std::optional<Program> made;
  while (!made) {
    try {
      made = program::parse(random.below(4) == 0 ? syno::testing::RandomChain(random.below(1 << 30))()
                                                 : about_a_row(random));
    } catch (const Error&) {  // sizes at which a tensor would be empty
    }
  }
  Program p = std::move(*made);
  if (random.below(4) != 0) return p;
  try {
    const auto inputs = p.inputs();
    return lower::derivative(p, p.tensor(inputs[random.below(inputs.size())]).name);
  } catch (const Error&) {  // none with respect to that input
    return p;
  }
}

}  // namespace syno::derive::testing
