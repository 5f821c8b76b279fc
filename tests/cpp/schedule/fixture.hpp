// What tests of schedules share: programs of every kind at odd sizes, and the comparison with the
// interpreter.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "construct/construct.hpp"
#include "nest/loop_nest.hpp"
#include "program/interpret.hpp"
#include "program/program.hpp"
#include "program/text.hpp"
#include "schedule/schedule.hpp"
#include "support/random.hpp"

namespace syno::schedule {

using namespace nest;

// Tests of this level look from above, too: at schedules that were constructed.
using construct::Choice;
using construct::Choosing;
using construct::construct;
using construct::Construction;
using construct::default_schedule;
using construct::Numbers;
using construct::Policy;
using construct::Sketch;
using construct::Sketches;
using machine::Target;

using Arguments = std::map<std::string, program::Values<double>>;

inline std::int64_t draw(Random& random, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1)));
}

inline Arguments random_arguments(const program::Program& p, Random& random) {
  Arguments arguments;
  for (const auto id : p.inputs()) {
    program::Values<double> values;
    values.shape = program::shape_of(p, id);
    std::int64_t count = 1;
    for (const auto extent : values.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i)
      values.data.push_back(static_cast<double>(draw(random, 1, 8)) / 4 - 1);
    arguments.emplace(p.tensor(id).name, std::move(values));
  }
  return arguments;
}

inline void expect_same(const program::Program& p, const LoopNest& nest, const Arguments& arguments,
                        const std::string& what) {
  const auto wanted = program::interpret(p, arguments);
  const auto got = interpret(nest, arguments);
  for (const auto id : p.outputs) {
    const auto& name = p.tensor(id).name;
    const auto& a = wanted.at(name);
    ASSERT_TRUE(got.contains(name)) << what;
    const auto& b = got.at(name);
    ASSERT_EQ(a.shape, b.shape) << what;
    for (std::size_t i = 0; i < a.data.size(); ++i) {
      if (a.data[i] == b.data[i] || (std::isnan(a.data[i]) && std::isnan(b.data[i]))) continue;
      ASSERT_NEAR(a.data[i], b.data[i], 1e-9 * std::max(1.0, std::abs(a.data[i])))
          << "element " << i << " of " << name << "\n"
          << what << "\n"
          << program::to_text(p) << "\n"
          << to_text(nest);
    }
  }
}

/// The two parts of a prepacked schedule, one after the other.
inline void expect_same_prepacked(const program::Program& p, const PrepackedNests& parts,
                                  const Arguments& arguments, const std::string& what) {
  ASSERT_NO_THROW(verify(parts.prepack)) << what << to_text(parts.prepack);
  ASSERT_NO_THROW(verify(parts.call)) << what << to_text(parts.call);
  Arguments all = arguments;
  const auto inputs_of = [&](const LoopNest& nest) {
    Arguments wanted;
    for (const auto& buffer : nest.buffers)
      if (buffer.kind == BufferKind::Input) wanted[buffer.name] = all.at(buffer.name);
    return wanted;
  };
  for (auto& [name, values] : interpret(parts.prepack, inputs_of(parts.prepack))) all[name] = values;
  const auto got = interpret(parts.call, inputs_of(parts.call));
  const auto wanted = program::interpret(p, arguments);
  for (const auto id : p.outputs) {
    const auto& name = p.tensor(id).name;
    const auto& a = wanted.at(name).data;
    const auto& b = got.at(name).data;
    ASSERT_EQ(a.size(), b.size()) << what;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i])))
        ASSERT_NEAR(a[i], b[i], 1e-9 * std::max(1.0, std::abs(a[i])))
            << what << to_text(parts.prepack) << to_text(parts.call);
  }
}

/// Programs of every shape this level meets, in the text form with sizes left open.
struct Template {
  const char* name;
  const char* text;
  std::vector<std::pair<const char*, std::pair<std::int64_t, std::int64_t>>>
      sizes;  ///< extents: least, greatest
};

inline void PrintTo(const Template& t, std::ostream* out) { *out << t.name; }

inline const std::vector<Template>& templates() {
  static const std::vector<Template> all{
      {"matmul", "y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", {1, 9}}, {"n", {1, 21}}, {"k", {1, 7}}}},
      {"linear", "y[m,n] = sum[k] a[m,k] * b[n,k]", {{"m", {1, 6}}, {"n", {1, 9}}, {"k", {1, 20}}}},
      {"batched_matmul",
       "y[b,m,n] = sum[k] a[b,m,k] * c[b,k,n]",
       {{"b", {1, 3}}, {"m", {1, 5}}, {"n", {1, 9}}, {"k", {1, 5}}}},
      {"conv",
       "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
       {{"n", {1, 2}},
        {"o", {1, 5}},
        {"h", {1, 6}},
        {"w", {1, 7}},
        {"c", {1, 3}},
        {"r", {3, 3}},
        {"s", {3, 3}}}},
      {"strided_conv",
       "y[o,h,w] = sum[c,r,s] x[c,2*h+r-1,2*w+s-1] * k[o,c,r,s]",
       {{"o", {1, 5}}, {"h", {1, 5}}, {"w", {1, 6}}, {"c", {1, 3}}, {"r", {3, 3}}, {"s", {3, 3}}}},
      {"dilated_conv",
       "y[o,i] = sum[c,r] x[c,i+2*r-2] * k[o,c,r]",
       {{"o", {1, 5}}, {"i", {1, 20}}, {"c", {1, 3}}, {"r", {3, 3}}}},
      {"grouped_conv",
       "y[g,o,h,w] = sum[c,r,s] x[g,c,h+r-1,w+s-1] * k[g,o,c,r,s]",
       {{"g", {1, 3}},
        {"o", {1, 3}},
        {"h", {1, 5}},
        {"w", {1, 6}},
        {"c", {1, 2}},
        {"r", {3, 3}},
        {"s", {3, 3}}}},
      {"flat_grouped_conv",
       "y[o,h,w] = sum[c,r,s] x[o / 3 * 2 + c,h+r-1,w+s-1] * k[o,c,r,s]",
       {{"o", {6, 6}}, {"h", {1, 5}}, {"w", {1, 6}}, {"c", {2, 2}}, {"r", {3, 3}}, {"s", {3, 3}}}},
      {"depthwise",
       "y[c,h,w] = sum[r,s] x[c,h+r-1,w+s-1] * k[c,r,s]",
       {{"c", {1, 4}}, {"h", {1, 6}}, {"w", {1, 7}}, {"r", {3, 3}}, {"s", {3, 3}}}},
      {"max_pool",
       "y[c,h,w] = max[r,s] x[c,2*h+r-1,2*w+s-1] fill -inf",
       {{"c", {1, 4}}, {"h", {1, 5}}, {"w", {1, 6}}, {"r", {3, 3}}, {"s", {3, 3}}}},
      {"average_pool",
       "y[c,h,w] = mean[r,s] x[c,2*h+r,2*w+s]",
       {{"c", {1, 4}}, {"h", {1, 5}}, {"w", {1, 6}}, {"r", {2, 2}}, {"s", {2, 2}}}},
      {"softmax",
       "y[i,j] = exp(x[i,j] - max[k] x[i,k]) / sum[k] exp(x[i,k] - max[l] x[i,l])",
       {{"i", {1, 4}}, {"j", {1, 19}}, {"k", {1, 19}}, {"l", {1, 19}}}},
      {"shared_exponentials",
       "y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])",
       {{"i", {1, 4}}, {"j", {9, 9}}, {"k", {9, 9}}}},
      {"weighted_exponentials",
       "y[i] = (sum[k] exp(x[i,k]) * z[k]) / sum[j] exp(x[i,j])",
       {{"i", {1, 4}}, {"j", {11, 11}}, {"k", {11, 11}}}},
      {"scaled_scores",
       "y[b,i,j] = sum[d] q[b,i,d] * k[b,j,d] / 8",
       {{"b", {1, 2}}, {"i", {1, 5}}, {"j", {1, 9}}, {"d", {1, 6}}}},
      {"weighted_mean",
       "y[i,j] = mean[k] -(x[i,k] * g[i]) * w[j,k]",
       {{"i", {1, 6}}, {"j", {1, 9}}, {"k", {1, 7}}}},
      {"added_then_read",
       "t[i,j,w] += u[i,j,w]; y[h,j,i] = t[i,j-1,h] * x[h,j,i]",
       {{"i", {1, 9}}, {"j", {2, 5}}, {"w", {19, 19}}, {"h", {19, 19}}}},
      {"product", "y[i] = prod[j] x[i,j]", {{"i", {1, 7}}, {"j", {1, 4}}}},
      {"least", "y[i] = min[j] x[i,j] + 1", {{"i", {1, 7}}, {"j", {1, 9}}}},
      {"elementwise",
       "t[i,j] = relu(a[i,j] + b[j]); y[i,j] = t[i,j] * a[i,j]",
       {{"i", {1, 6}}, {"j", {1, 19}}}},
      {"select", "y[i,j] = select(i < j, x[i,j], x[i,j] * 2)", {{"i", {1, 6}}, {"j", {1, 9}}}},
      {"shift_unfold", "y[i] = sum[r] x[inside(i + r - 1, 6) % 5] * k[r]", {{"i", {5, 5}}, {"r", {3, 3}}}},
      {"shift_over_unfold",
       "y[i] = sum[r] x[(inside(i + r - 1, 8) + 1) % 8] * k[r]",
       {{"i", {8, 8}}, {"r", {3, 3}}}},
      {"split_merge", "y[i] = sum[j] x[(i*4 + j) / 3, (i*4 + j) % 3] * k[j]", {{"i", {3, 6}}, {"j", {4, 4}}}},
      {"shifted",
       "y[c,h,w] = sum[d] x[d,(h+1)%6,w] * k[c,d]",
       {{"c", {1, 5}}, {"h", {6, 6}}, {"w", {1, 7}}, {"d", {1, 4}}}},
      {"shifted_blocks",
       "y[c,h,w] = sum[d] x[d,3*((w+1)%4)+(w/4+1)%3,h] * k[c,d]",
       {{"c", {1, 5}}, {"h", {1, 6}}, {"w", {12, 12}}, {"d", {1, 4}}}},
      {"weights_by_column",
       "y[c,h,w] = sum[d] x[d,h,(w+1)%12] * k[c,d,w%4]",
       {{"c", {1, 5}}, {"h", {1, 6}}, {"w", {12, 12}}, {"d", {1, 4}}}},
      {"weights_by_row",
       "y[c,h,w] = sum[d] x[d,w,h] * k[c,d,h/4]",
       {{"c", {1, 5}}, {"h", {8, 8}}, {"w", {1, 12}}, {"d", {1, 4}}}},
      {"turned_weights",
       "y[c,h,w] = sum[d] x[d,w,4*(h/4)+(h+3)%4] * k[c,d,(h+3)%4]",
       {{"c", {1, 5}}, {"h", {8, 8}}, {"w", {1, 12}}, {"d", {1, 4}}}},
      {"channel_window",
       "y[c,h,w] = sum[r,d] x[(r+2*d+c/4)%8,h,(w+1)%10] * k[c%4,r,2*d+c/4]",
       {{"c", {8, 8}}, {"h", {1, 3}}, {"w", {10, 10}}, {"d", {3, 3}}, {"r", {3, 3}}}},
      {"sum_of_parts",
       "y[c,h,w] = sum[r,d] x[r+(c+d)%5,h,w] * k[c,r]",
       {{"c", {1, 6}}, {"h", {1, 3}}, {"w", {1, 9}}, {"d", {1, 3}}, {"r", {3, 3}}}},
      {"diagonal", "y[h,w] = sum[c] x[c,c,h,h%2,w] * k[c]", {{"h", {2, 6}}, {"w", {1, 9}}, {"c", {1, 4}}}},
      {"transposed_conv",
       "y[o,h,w] = sum[c,r,s] x[c,(h+1-r)/2 + inside((h+1-r)%2,1),(w+1-s)/2 + inside((w+1-s)%2,1)] * "
       "k[c,o,r,s]",
       {{"o", {1, 5}}, {"h", {2, 6}}, {"w", {2, 9}}, {"c", {1, 3}}, {"r", {4, 4}}, {"s", {3, 3}}}},
      {"dilated_transposed",
       "y[h,o] = sum[c,r] x[(h+2-2*r)/3 + inside((h+2-2*r)%3,1),c] * k[r,c,o]",
       {{"o", {1, 18}}, {"h", {9, 14}}, {"c", {1, 3}}, {"r", {2, 4}}}},
      {"scatter", "y[2*h + r] += x[h] * w[r]", {{"h", {1, 9}}, {"r", {1, 4}}}},
      {"scatter_across", "y[j+i, h] += x[i,j,h] * x[i,j,h]", {{"h", {4, 9}}, {"i", {4, 19}}, {"j", {1, 2}}}},
      {"scatter_rows", "y[h, 2*i + r] += x[h,i] * w[r]", {{"h", {1, 5}}, {"i", {1, 9}}, {"r", {1, 3}}}},
      {"two_stages",
       "t[g,h,w] = sum[c] x[c,h,w] * a[g,c]; y[o,h,w] = sum[g,r] t[g,h+r-1,w] * b[o,g,r]",
       {{"g", {1, 3}}, {"h", {1, 6}}, {"w", {1, 7}}, {"c", {1, 3}}, {"o", {1, 4}}, {"r", {3, 3}}}},
      {"conv_bias_relu",
       "y[o,h,w] = max(sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s] + b[o], 0)",
       {{"o", {1, 20}}, {"h", {1, 6}}, {"w", {1, 9}}, {"c", {1, 3}}, {"r", {3, 3}}, {"s", {3, 3}}}},
      {"conv_residual",
       "y[n,o,h,w] = max(sum[c,r,s] x[n,c,2*h+r-1,2*w+s-1] * k[o,c,r,s] + b[o] + z[n,o,h,w], 0)",
       {{"n", {1, 2}},
        {"o", {1, 5}},
        {"h", {1, 5}},
        {"w", {1, 7}},
        {"c", {1, 3}},
        {"r", {3, 3}},
        {"s", {3, 3}}}},
      {"linear_gelu",
       "t[m,n] = sum[k] x[m,k] * w[n,k]; y[n,m] = gelu(t[m,n] + b[n])",
       {{"m", {1, 9}}, {"n", {1, 21}}, {"k", {1, 20}}}},
      {"mean_scaled",
       "t[c] = mean[h] x[c,h]; u[c] = t[c] * a[c]; y[c] = u[c] / (u[c] * u[c] + 1)",
       {{"c", {1, 20}}, {"h", {1, 9}}}},
      {"pool_cropped",
       "t[c,i: 12] = max[r] x[c,2*i+r-1] fill -inf; y[c,i: 10] = t[c,i+1] * select(i < 3, a[c], b[i])",
       {{"c", {1, 20}}, {"r", {3, 3}}}},
      {"epilogue_between_stages",
       "t[d,h] = relu(sum[c] x[c,h] * a[d,c] + e[d]); y[o,h] = relu(sum[d,r] t[d,h+r-1] * b[o,d,r] + f[h])",
       {{"d", {1, 9}}, {"h", {1, 20}}, {"c", {1, 5}}, {"o", {1, 6}}, {"r", {3, 3}}}},
      {"sum_function_sum",
       "input x[2,2,3]; t[a: 2, b: 2, i: 2] = sum[k: 3] x[a,b,2*i+k-1]; s[a: 2, b: 2, i: 2] = 2*t[a,b,i]; "
       "d[a: 2, b: 2, i: 3] = sum[j: 2] s[a,b,j]",
       {}},
      {"conv_relu_conv",
       "t[o,i,j] = sum[c,a,b] x[c,i+a-1,j+b-1] * d[o,c,a,b]; s[o,i,j] = relu(t[o,i,j]); "
       "y[q,i,j] = sum[o] s[o,i,j] * p[q,o]",
       {{"o", {1, 9}},
        {"c", {1, 5}},
        {"q", {1, 9}},
        {"i", {1, 9}},
        {"j", {1, 14}},
        {"a", {3, 3}},
        {"b", {3, 3}}}},
      {"depthwise_relu_pointwise",
       "t[c,i,j] = sum[a,b] x[c,2*i+a-1,2*j+b-1] * d[c,a,b]; s[c,i,j] = relu(t[c,i,j]); "
       "y[q,i,j] = sum[c] s[c,i,j] * p[q,c]",
       {{"c", {1, 9}}, {"q", {1, 9}}, {"i", {1, 9}}, {"j", {1, 14}}, {"a", {3, 3}}, {"b", {3, 3}}}},
      {"offset_range", "t[h: -1..7] = sum[c: 3] x[c, h + 1]; y[i: 6] = sum[r: 3] t[i + r - 1]", {}},
  };
  return all;
}

inline program::Program instance(const Template& t, Random& random) {
  program::ParseOptions options;
  for (const auto& [name, range] : t.sizes)
    options.sizes.emplace(name, draw(random, range.first, range.second));
  if (const auto j = options.sizes.find("j"); j != options.sizes.end())  // softmax's rows
    for (const char* name : {"k", "l"})
      if (std::string(t.name) == "softmax") options.sizes[name] = j->second;
  return program::parse(t.text, options);
}

/// Takes sketches of one strategy, with numbers by lot half of the time; `taken` counts how often.
inline Policy by_lot(Random& random, std::string strategy, int* taken = nullptr) {
  return [&random, strategy = std::move(strategy), taken](const Construction& c, const std::string& scope,
                                                          const Sketches& sketches) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < sketches.size(); ++i)
      if (sketches[i].name.starts_with(strategy)) places.push_back(i);
    if (places.empty()) return fewest_cycles(c, scope, sketches);
    Choosing choice{places[random.below(places.size())], {}};
    const Sketch& sketch = sketches[choice.sketch];
    choice.numbers = sketch.counted;
    if (random.below(2))
      for (const Choice& open : sketch.choices)
        choice.numbers.*open.number = open.values[random.below(open.values.size())];
    if (taken) ++*taken;
    return choice;
  };
}

}  // namespace syno::schedule
