// Functions of Triton modules that the language lacks, or whose corners differ from the interpreter's.
#include <map>

#include "emit/triton_scope.hpp"

namespace syno::emit {

std::vector<std::string> triton_helper(const std::string& name) {
  // What is not a number stays in extremes. The series of tanh near 0 are those of Cephes (Moshier, 1989).
  static const std::map<std::string, std::vector<std::string>, std::less<>> kHelpers = {
      {"_maximum", {"@triton.jit", "def _maximum(a, b):", "    return tl.where((a > b) | (a != a), a, b)"}},
      {"_minimum", {"@triton.jit", "def _minimum(a, b):", "    return tl.where((a < b) | (a != a), a, b)"}},
      {"_multiply", {"@triton.jit", "def _multiply(a, b):", "    return a * b"}},
      {"_sigmoid",
       {"@triton.jit", "def _sigmoid(x):", "    e = tl.exp(-tl.abs(x))",
        "    return tl.where(x >= 0, 1.0, e) / (1.0 + e)"}},
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
