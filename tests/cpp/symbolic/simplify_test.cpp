// The simplifier as a whole: known results, values kept, doing it twice changes nothing.
#include "symbolic/simplify.hpp"

#include <gtest/gtest.h>

#include "fixture.hpp"
#include "support/error.hpp"

namespace syno::symbolic {
namespace {

using testing::Fixture;

struct Simplify : ::testing::Test {
  Fixture f;
  Simplify() {
    f.iterate("i", "H");
    f.iterate("j", "C");
    f.iterate("r", "k");
    f.iterate("t", "s");
    f.iterate("u", "H*k^-1");
    f.iterate("v", "40");
    f.iterate("p", "H + 2", "-2");
  }
  std::string simple(const std::string& text) {
    return f.text(simplify(f.arena, f.parse(text), f.context()));
  }
};

TEST_F(Simplify, KnownForms) {
  const std::pair<const char*, const char*> table[] = {
      {"j + i + j - 2*j", "i"},
      {"((u*k + r) / k) * k + (u*k + r) % k", "r + u * k"},
      {"(u*k + r) / k", "u"},
      {"(u*k + r) % k", "r"},
      {"(i*k + r) / k", "i"},
      {"(i / k) * k + i % k", "i"},
      {"C*((i / k) * k) + C*(i % k)", "i * C"},
      {"(i / 2) / 3", "i / 6"},
      {"(v % 6) / 2", "v / 2 % 3"},
      {"(v % 6) % 2", "v % 2"},
      {"((i + 1) % H + 1) % H", "(i + 2) % H"},
      {"i % H", "i"},
      {"i / H", "0"},
      {"(i + H) % H", "i"},
      {"inside(i, H)", "i"},
      {"inside(i + H - H, 2*H)", "i"},
      {"inside(i - 1, H)", "inside(i - 1, H)"},
      {"inside(inside(p, H), 2*H)", "inside(p, H)"},
      {"inside(inside(p, 2*H), H)", "inside(p, H)"},
      {"(i/(H*k^-1))*(H*k^-1) + (i % (H*k^-1) + 1) % (H*k^-1)",
       "i / (H*k^-1) * (H*k^-1) + (i + 1) % (H*k^-1)"},
      {"((i/k + 1) % (H*k^-1))*k + i % k", "(i + k) % H"},
      {"v - v % 5", "5 * (v / 5)"},
      {"v - 5*(v / 5)", "v % 5"},
      {"(7*v + 9) % 3", "v % 3"},
      {"k / 2", "k / 2"},
      {"(i*s*k + r*s + t) / (s*k)", "i"},
      {"(u*s*k + r*s + t) % (s*k)", "r * s + t"},
  };
  for (const auto& [from, to] : table) EXPECT_EQ(simple(from), to) << from;
}

}  // namespace
}  // namespace syno::symbolic
