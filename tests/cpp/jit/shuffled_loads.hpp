// Loads of lanes that lie apart; T stands for the dtype.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace syno::jit::testing_nests {

struct ShuffledCase {
  std::string name, text;
  bool gathers = false;                  ///< on a CPU with gathers
  std::vector<std::int64_t> sizes = {};  ///< of its parameter; empty: it has none
};
inline void PrintTo(const ShuffledCase& value, std::ostream* out) { *out << value.name; }

inline const std::vector<ShuffledCase>& shuffled_cases() {
  static const std::vector<ShuffledCase> all{
      {"stride_two",
       "input x: T[64]\noutput y: T[32]\nfor i in 0..32 vector\n  y[i] = x[2 * i] - x[2 * i + 1]\n"},
      {"stride_two_to_the_end",
       "input x: T[63]\noutput y: T[32]\nfor i in 0..32 vector\n  y[i] = x[2 * i]\n"},
      {"stride_three",
       "input x: T[140]\noutput y: T[45]\nfor i in 0..45 vector\n  y[i] = x[3 * i + 2] + x[3 * i]\n"},
      {"backwards", "input x: T[140]\noutput y: T[45]\nfor i in 0..45 vector\n  y[i] = x[100 - 2 * i]\n"},
      {"views",
       "input x: T[40, 9] strides[23, 2]\ninput z: T[33] strides[-3]\noutput y: T[33]\n"
       "for i in 0..33 vector\n  y[i] = x[2, i / 4] + z[i]\n"},
      {"interleaved",
       "input x: T[2, 64]\noutput y: T[128]\nfor i in 0..128 vector\n  y[i] = x[i % 2, i / 2]\n"},
      {"repeated",
       "input x: T[40]\noutput y: T[120]\nfor i in 0..120 vector\n  y[i] = x[i / 3] * x[i % 3]\n"},
      {"window_at_borders",
       "input x: T[70]\noutput y: T[35]\nfor o in 0..3\n  for i in 0..16 vector\n"
       "    if 16 * o + i in 0..35\n"
       "      y[16 * o + i] = x[32 * o + 2 * i - 1] {32 * o + 2 * i - 1 in 0..70 else 5}\n"},
      {"far_apart_at_borders",
       "input x: T[280]\noutput y: T[35]\nfor o in 0..3\n  for i in 0..16 vector\n"
       "    if 16 * o + i in 0..35\n"
       "      y[16 * o + i] = x[128 * o + 8 * i - 1] {128 * o + 8 * i - 1 in 0..280 else 5}\n",
       true},
      {"constant_borders",
       "input x: T[30]\noutput y: T[16]\nfor i in 0..16 vector\n"
       "  y[i] = x[2 * i - 1] {2 * i - 1 in 0..30 else -3}\n"},
      {"padded_rows",
       "input x: T[24, 3, 3]\noutput y: T[24, 4, 4]\nfor c in 0..24\n  for o in 0..2\n    for i in 0..8 "
       "vector\n"
       "      y[c, i / 4 + 2 * o, i % 4] = x[c, i / 4 + 2 * o, i % 4] "
       "{i / 4 + 2 * o in 0..3, i % 4 in 0..3 else 0}\n"},
      {"shared_by_lanes_of_two_minds",
       "input x: T[40]\noutput y: T[5, 16]\nfor o in 0..5\n  for i in 0..16 vector\n"
       "    y[o, i] = x[i / 2 + 4 * o] {i + o in 2..17 else 7}\n"},
      {"rows_on_a_condition",
       "input x: T[4, 64]\noutput y: T[6, 32]\nfor r in 0..6\n  for i in 0..32 vector\n"
       "    y[r, i] = x[r - 1, 2 * i] {r - 1 in 0..4 else 2}\n"},
      {"written_between",
       "input x: T[64]\noutput y: T[64]\nfor i in 0..16 vector\n  y[i] = x[i]\n"
       "for i in 0..16 vector\n  y[16 + i] = y[i / 2]\n"
       "for i in 0..16 vector\n  y[i] = y[16 + i] + 1\n"
       "for i in 0..32 vector\n  y[32 + i] = y[i / 2]\n"},
  };
  return all;
}

/// Rows whose length a call brings along.
inline const std::vector<ShuffledCase>& sized_cases() {
  static const std::vector<ShuffledCase> all{
      {"window_of_a_size",
       "parameter n in 2..71\ninput x: T[3, n]\noutput y: T[3, (n + 1) / 2]\nfor c in 0..3\n"
       "  for o in 0..((n + 1) / 2 + 15) / 16\n    for i in 0..16 vector\n"
       "      if 16 * o + i - ((n + 1) / 2) in -35..0\n"
       "        y[c, 16 * o + i] = x[c, 32 * o + 2 * i - 1] "
       "{32 * o + 2 * i - 1 in 0..70, 32 * o + 2 * i - n - 1 in -71..0 else 5}\n",
       false,
       {2, 3, 16, 17, 33, 64, 69, 70}},
      {"inside_of_a_size",
       "parameter n in 40..71\ninput x: T[3, n]\noutput y: T[3, 16]\n"
       "output z: T[3, n / 32, 16]\nfor c in 0..3\n"
       "  for i in 0..16 vector\n    y[c, i] = x[c, 2 * i]\n"
       "  for o in 0..n / 32\n    for i in 0..16 vector\n      z[c, o, i] = x[c, 32 * o + 2 * i + 1]\n",
       false,
       {40, 63, 64, 70}},
      {"both_columns_of_a_window",  // of which one load takes the even elements, the other the odd ones
       "parameter n in 17..41\ninput x: T[3, 2 * n]\noutput y: T[3, n]\nfor c in 0..3\n  for i in 0..16 "
       "vector\n"
       "    if i + 16 - n in -25..0\n"
       "      y[c, i + 16] = max(x[c, 2 * i + 32] {2 * i + 32 - 2 * n in -50..0 else 0}, "
       "x[c, 2 * i + 33] {2 * i + 33 - 2 * n in -50..0 else 0})\n",
       false,
       {17, 18, 24, 31, 32, 33, 40}},
      {"rows_that_the_place_tells",  // of those that are no rows, no element is read
       "parameter n in 16..33\ninput x: T[2, n]\noutput y: T[3, 16]\nfor o in 0..3\n  for i in 0..16 vector\n"
       "    y[o, i] = x[o, 16 * o + 2 * i + 1] {o in 0..2, 16 * o + 2 * i + 1 in 0..32, 16 * o + 2 * i + 1 - "
       "n in "
       "-32..0 else 3}\n",
       false,
       {16, 17, 31, 32}},
  };
  return all;
}

inline std::string with_dtype(const ShuffledCase& value, const std::string& dtype) {
  std::string text = "nest " + value.name + "\n" + value.text;
  for (std::size_t at = 0; (at = text.find(": T[", at)) != std::string::npos;) text.replace(at + 2, 1, dtype);
  return text;
}

}  // namespace syno::jit::testing_nests
