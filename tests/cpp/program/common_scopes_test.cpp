#include "program/common_scopes.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <string>

#include "naive.hpp"
#include "program/interpret.hpp"
#include "program/scalars.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_program.hpp"

namespace syno::program {
namespace {

using testing::random_inputs;
using testing::same;

/// A program that computes some scopes of another one twice, or nearly so: readers read either.
class Doubled {
 public:
  Doubled(const Program& from, Random random) : from_(from), made_(from), random_(random) {
    made_.scopes.clear();
    for (std::size_t t = 0; t < from.tensors.size(); ++t)
      equal_.push_back({TensorId{static_cast<std::uint32_t>(t)}});
    for (const Scope& scope : from.scopes) {
      made_.scopes.push_back(scope);
      made_.scopes.back().body = body(scope, {});
      if (!scope.target.empty()) continue;
      for (std::uint64_t n = random_.below(3); n > 0; --n) copy(scope, random_.below(3) == 0);
    }
  }

  Program made() const { return made_; }
  int equal = 0, near = 0;  ///< copies that compute the same; that differ in something

 private:
  ScalarId body(const Scope& scope, const std::map<std::uint32_t, std::uint32_t>& slots) {
    std::map<ScalarId, ScalarId> copies;
    return copy_body(from_, scope.body, made_, copies, [&](Scalar& scalar) {
      if (scalar.kind == ScalarKind::Read) {
        const auto& all = equal_[static_cast<std::size_t>(scalar.tensor)];
        scalar.tensor = all[random_.below(all.size())];
      }
      over_indices(scalar, [&](ExprId& index) {
        index = made_.arena.substitute(index, [&](std::uint32_t slot) {
          const auto found = slots.find(slot);
          return made_.arena.iterator(found == slots.end() ? slot : found->second);
        });
      });
    });
  }

  void copy(const Scope& scope, bool another) {
    Scope made = scope;
    std::map<std::uint32_t, std::uint32_t> slots;
    for (auto* list : {&made.traversal, &made.sums})
      for (Iterator& iterator : *list) {
        const Iterator fresh = made_.new_iterator("q" + std::to_string(made_.next_slot), iterator.range);
        slots.emplace(iterator.slot, fresh.slot);
        iterator = fresh;
      }
    made.body = body(scope, slots);
    if (another) {
      // A literal that no generator writes makes it another function; a sum of it another one too.
      made.body = made_.binary(Function::Add, made.body, made_.literal(Rational(1001, 1000)));
      ++near;
    } else {
      ++equal;
    }
    Tensor output = from_.tensor(scope.output);
    output.name += "_" + std::to_string(made_.tensors.size());
    made.output = made_.add_tensor(std::move(output));
    equal_.resize(made_.tensors.size());
    if (!another) equal_[static_cast<std::size_t>(scope.output)].push_back(made.output);
    if (another || random_.below(4) == 0) made_.outputs.push_back(made.output);
    made_.scopes.push_back(std::move(made));
  }

  const Program& from_;
  Program made_;
  Random random_;
  std::vector<std::vector<TensorId>> equal_;  ///< by tensor of the original: it and its copies
};

TEST(CommonScopes, WhatIsComputedTwiceIsComputedOnce) {
  int taken = 0, kept = 0;
  EXPECT_TRUE(rc::check("copies of scopes go, near copies stay", [&](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 10; ++i) {
      Random random = Random(start).fork(i);
      const Program p = with_common_scopes(at(testing::ProgramGenerator(random())(), 0));
      const Doubled doubled(p, random);
      const Program given = doubled.made();
      verify(given);
      const Program made = with_common_scopes(given);
      verify(made);
      RC_ASSERT(made.outputs.size() == given.outputs.size());
      for (std::size_t o = 0; o < made.outputs.size(); ++o)
        RC_ASSERT(made.tensor(made.outputs[o]).name == given.tensor(given.outputs[o]).name);
      const auto inputs = random_inputs(p, start);
      const auto wanted = interpret(given, inputs), got = interpret(made, inputs);
      RC_ASSERT(wanted.size() == got.size());
      for (const auto& [name, values] : wanted) {
        const auto& others = got.at(name).data;
        RC_ASSERT(others.size() == values.data.size());
        for (std::size_t k = 0; k < others.size(); ++k) RC_ASSERT(same(values.data[k], others[k]));
      }
      // Copies go unless two are outputs. Two near copies of one scope may be equal themselves.
      const auto outputs = static_cast<int>(given.outputs.size() - p.outputs.size()) - doubled.near;
      const auto left = static_cast<int>(made.scopes.size() - p.scopes.size());
      RC_ASSERT(left <= doubled.near + outputs);
      RC_ASSERT(left >= (doubled.near > 0 ? 1 : 0));
      taken += static_cast<int>(given.scopes.size() - made.scopes.size());
      kept += left;
      RC_ASSERT(to_text(with_common_scopes(made)) == to_text(made));
    }
  }));
  EXPECT_GT(taken, 200);
  EXPECT_GT(kept, 200);
}

struct Twin {
  const char* what;
  const char* program;
  std::size_t scopes;  ///< left
};

class CommonScopesOf : public ::testing::TestWithParam<Twin> {};

TEST_P(CommonScopesOf, OneProgram) {
  const Program given = parse(GetParam().program), made = with_common_scopes(given);
  verify(made);
  EXPECT_EQ(made.scopes.size(), GetParam().scopes) << to_text(made);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CommonScopesOf,
    ::testing::Values(
        Twin{"a mean and a variance",
             "input x[4, 3]\nm[i: 3] = mean[r: 4] x[r, i]\nn[j: 3] = mean[k: 4] x[k, j]\n"
             "v[j: 3] = sum[k: 4] (x[k, j] - n[j]) * (x[k, j] - n[j])\nreturn m, v\n",
             2},
        Twin{"a chain",
             "input x[4]\na[i: 4] = exp(x[i])\nb[i: 4] = exp(x[i])\nc[i: 4] = a[i] + 1\n"
             "d[i: 4] = b[i] + 1\ne[i: 4] = c[i] * d[i]\n",
             3},
        Twin{"two outputs", "input x[4]\na[i: 4] = exp(x[i])\nb[i: 4] = exp(x[i])\nreturn a, b\n", 2},
        Twin{"the later one is an output",
             "input x[4]\na[i: 4] = exp(x[i])\nb[i: 4] = exp(x[i])\n"
             "c[i: 4] = a[i] + b[i]\nreturn c, b\n",
             2},
        Twin{"another range", "input x[4]\na[i: 4] = exp(x[i])\nb[i: 3] = exp(x[i])\nreturn a, b\n", 2},
        Twin{"another reduction", "input x[4]\na[] = sum[i: 4] x[i]\nb[] = max[i: 4] x[i]\nc[] = a[] + b[]\n",
             3},
        Twin{"another fill", "input x[4]\na[i: 5] = x[i]\nb[i: 5] = x[i] fill 1\nc[i: 5] = a[i] + b[i]\n", 3},
        Twin{"another order of loops",
             "input x[4, 4]\na[i: 4, j: 4] = x[i, j]\nb[i: 4, j: 4] = x[j, i]\n"
             "c[i: 4, j: 4] = a[i, j] + b[i, j]\n",
             3},
        Twin{"another function",
             "input x[4]\na[i: 4] = exp(x[i])\nb[i: 4] = tanh(x[i])\nc[i: 4] = a[i] + b[i]\n", 3}),
    [](const auto& each) {
      std::string name = each.param.what;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

}  // namespace
}  // namespace syno::program
