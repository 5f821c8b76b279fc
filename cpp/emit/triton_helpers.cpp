// Functions of Triton modules that the language lacks, or whose corners differ from the interpreter's.
#include <fmt/format.h>

#include <array>
#include <map>
#include <string_view>

#include "emit/triton_scope.hpp"

namespace syno::emit {

namespace {

// (atan(u) / u - 1) / u^2 in u^2 for |u| <= tan(pi / 8), highest power first: Chebyshev interpolation.
constexpr std::array<std::string_view, 5> kAtanSingle{"-0.06451509518644879", "0.10743605148917443",
                                                      "-0.14263943907717944", "0.19999540146206403",
                                                      "-0.33333331759700254"};
constexpr std::array<std::string_view, 12> kAtanDouble{
    "0.016282993238924487", "-0.034568068014968876", "0.0455149623749493",  "-0.05230433007482892",
    "0.05878926110528101",  "-0.06666424634599337",  "0.07692296361048218", "-0.09090908753017178",
    "0.11111111105145725",  "-0.14285714285659728",  "0.19999999999999804", "-0.3333333333333333"};

template <std::size_t n>
std::vector<std::string> atan_helper(const std::string& name, const std::array<std::string_view, n>& series) {
  std::vector<std::string> lines{"@triton.jit",
                                 "def " + name + "(x):",
                                 "    a = tl.abs(x)",
                                 "    mid = a > 0.41421356237309503",
                                 "    far = a > 2.414213562373095",
                                 "    above = tl.where(far, -1.0, tl.where(mid, a - 1.0, a))",
                                 "    u = above / tl.where(far, a, tl.where(mid, a + 1.0, 1.0))",
                                 "    z = u * u",
                                 "    series = " + std::string(series[0])};
  for (std::size_t i = 1; i < n; ++i) {
    const bool minus = series[i].front() == '-';
    lines.push_back(
        fmt::format("    series = series * z {} {}", minus ? "-" : "+", series[i].substr(minus ? 1 : 0)));
  }
  // A choice between two numbers is of float32 in Triton, whatever the tensors are.
  lines.emplace_back("    none = tl.zeros_like(a)");
  lines.emplace_back(
      "    base = tl.where(far, none + 1.5707963267948966, tl.where(mid, none + 0.7853981633974483, none))");
  lines.emplace_back("    value = base + (u + u * z * series)");
  lines.emplace_back("    return tl.where(x < 0, -value, value)");
  return lines;
}

}  // namespace

std::vector<std::string> triton_helper(const std::string& name) {
  // What is not a number stays in extremes. The series of tanh near 0 are those of Cephes (Moshier, 1989).
  static const std::map<std::string, std::vector<std::string>, std::less<>> kHelpers = {
      {"_maximum", {"@triton.jit", "def _maximum(a, b):", "    return tl.where((a > b) | (a != a), a, b)"}},
      {"_minimum", {"@triton.jit", "def _minimum(a, b):", "    return tl.where((a < b) | (a != a), a, b)"}},
      {"_multiply", {"@triton.jit", "def _multiply(a, b):", "    return a * b"}},
      {"_sigmoid",
       {"@triton.jit", "def _sigmoid(x):", "    e = tl.exp(-tl.abs(x))",
        "    return tl.where(x >= 0, 1.0, e) / (1.0 + e)"}},
      {"_trunc", {"@triton.jit", "def _trunc(x):", "    return tl.where(x < 0, tl.ceil(x), tl.floor(x))"}},
      {"_round",
       {"@triton.jit", "def _round(x):", "    below = tl.floor(x)", "    rest = x - below",
        "    even = 2.0 * tl.floor(0.5 * (below + 1.0))",
        "    return tl.where(rest < 0.5, below, tl.where(rest > 0.5, below + 1.0, even))"}},
      {"_atan", atan_helper("_atan", kAtanSingle)},
      {"_atan_wide", atan_helper("_atan_wide", kAtanDouble)},
      {"_tanh",
       {"@triton.jit", "def _tanh(x):", "    a = tl.abs(x)", "    e = tl.exp(-2.0 * a)", "    z = a * a",
        "    series = -5.70498872745e-3 * z + 2.06390887954e-2",
        "    series = (series * z - 5.37397155531e-2) * z + 1.33314422036e-1",
        "    near = a + a * z * (series * z - 3.33332819422e-1)",
        "    value = tl.where(a < 0.625, near, (1.0 - e) / (1.0 + e))",
        "    return tl.where(x < 0, -value, value)"}},
      {"_tanh_wide",
       {"@triton.jit", "def _tanh_wide(x):", "    a = tl.abs(x)", "    e = tl.exp(-2.0 * a)", "    z = a * a",
        "    above = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z - "
        "1.61468768441708447952e3",
        "    below = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z + "
        "4.84406305325125486048e3",
        "    value = tl.where(a < 0.625, a + a * z * (above / below), (1.0 - e) / (1.0 + e))",
        "    return tl.where(x < 0, -value, value)"}}};
  return kHelpers.at(name);
}

}  // namespace syno::emit
