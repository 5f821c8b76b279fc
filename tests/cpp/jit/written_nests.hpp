// Hand-written nests, one a feature of the code generator; T stands for the dtype.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace syno::jit::testing_nests {

struct WrittenCase {
  std::string name, text;
};
inline void PrintTo(const WrittenCase& value, std::ostream* out) { *out << value.name; }

inline const std::vector<WrittenCase>& written_cases() {
  static const std::vector<WrittenCase> all{
      {"scalar", "input a: T[]\noutput y: T[]\ny[] = a[] * a[] + 2\n"},
      {"elementwise_tail", R"(input x: T[37]
input z: T[37]
output y: T[37]
for i in 0..37 vector
  y[i] = x[i] * z[i] + 1
)"},
      {"long_vector_loop", R"(input x: T[523]
output y: T[523]
for i in 0..523 vector
  y[i] = max(x[i], 0.25) - 1
)"},
      {"masked_tail_by_if", R"(input x: T[100]
output y: T[100]
for i in 0..7
  for v in 0..16 vector
    if 16 * i + v in 0..100
      y[16 * i + v] = x[16 * i + v]
      y[16 * i + v] += x[99 - 16 * i - v]
)"},
      {"guards_without_reading_outside", R"(input x: T[5, 7]
output y: T[9, 11]
for i in 0..9
  for j in 0..11 vector
    y[i, j] = x[i - 2, j - 2] {i - 2 in 0..5, j - 2 in 0..7 else -1} + x[0, i] {i in 0..7 else 3}
)"},
      {"fills", R"(input x: T[5]
output y: T[20]
output z: T[20]
for i in 0..20 vector
  y[i] = x[i - 7] {i - 7 in 0..5 else -inf}
  z[i] = x[2] {i in 3..4 else 0.5}
)"},
      {"strides", R"(input x: T[200]
output y: T[19]
output z: T[200]
for i in 0..19 vector
  y[i] = x[2 * i] + x[3 * i + 1] * x[4 * i + 2] - x[7 * i] + x[60 - 2 * i] + x[20 - i]
for i in 0..200
  z[i] = 0
for i in 0..19 vector
  z[5 * i + 1] = x[i]
  z[5 * i + 1] += x[i + 1]
)"},
      {"quotients_and_remainders", R"(input x: T[6, 10]
output y: T[60]
output z: T[64]
for i in 0..60 vector
  y[i] = x[i / 10, i % 10]
for f in 0..8
  for v in 0..8 vector
    z[8 * f + v] = x[(f - 4) % 6, (v - 9) % 10] + index((f - 5) / 3 + (v - 4) / 2) + index(8 * f + v)
)"},
      {"negative_quotients_of_serial_loops", R"(input x: T[50]
output y: T[40]
for i in 0..40
  y[i] = x[(i - 20) / 3 + 7] * x[(i - 20) % 7] + x[(i - 20) / 4 + 5] - x[(i - 20) % 8]
)"},
      {"register_tile", R"(input a: T[13, 21]
input b: T[21, 50]
output c: T[13, 50]
register acc: T[4, 32]
for i in 0..4
  for j in 0..2
    allocate acc
      for r in 0..4 unroll
        for q in 0..2 unroll
          for v in 0..16 vector
            acc[r, 16 * q + v] = 0
      for k in 0..21
        for r in 0..4 unroll
          for q in 0..2 unroll
            for v in 0..16 vector
              acc[r, 16 * q + v] += a[4 * i + r, k] {4 * i + r in 0..13 else 0} * b[k, 32 * j + 16 * q + v] {32 * j + 16 * q + v in 0..50 else 0}
      for r in 0..4 unroll
        if 4 * i + r in 0..13
          for q in 0..2 unroll
            for v in 0..16 vector
              if 32 * j + 16 * q + v in 0..50
                c[4 * i + r, 32 * j + 16 * q + v] = acc[r, 16 * q + v]
)"},
      {"sums_of_lanes_as_a_vector", R"(input x: T[3, 6, 16]
output y: T[3, 6]
register sum: T[3, 6]
allocate sum
  for i in 0..3 unroll
    for j in 0..6 vector
      sum[i, j] = 0
  for i in 0..3 unroll
    for j in 0..6 unroll
      for l in 0..16 vector
        sum[i, j] += x[i, j, l]
  for i in 0..3 unroll
    for j in 0..6 vector
      y[i, j] = sum[i, j]
)"},
      {"sums_of_lanes_as_numbers", R"(input x: T[3, 5, 8]
output y: T[3, 5]
register sum: T[3, 5]
allocate sum
  for i in 0..3 unroll
    for j in 0..5 unroll
      sum[i, j] = 1
  for i in 0..3 unroll
    for j in 0..5 unroll
      for l in 0..8 vector
        sum[i, j] += x[i, j, l] {l + j in 0..7 else 0}
  for i in 0..3 unroll
    for j in 0..5 unroll
      y[i, j] = sum[i, j]
)"},
      {"greatest_of_lanes_as_a_vector", R"(input x: T[3, 4, 4]
output y: T[3, 4]
register sum: T[3, 4]
allocate sum
  for i in 0..3 unroll
    for j in 0..4 vector
      sum[i, j] = -inf
  for i in 0..3 unroll
    for j in 0..4 unroll
      for l in 0..4 vector
        sum[i, j] max= x[i, j, l]
  for i in 0..3 unroll
    for j in 0..4 vector
      y[i, j] = sum[i, j]
)"},
      {"register_tile_of_odd_width", R"(input a: T[3, 9]
input b: T[9, 23]
output c: T[3, 23]
register acc: T[3, 23]
allocate acc
  for r in 0..3 unroll
    for v in 0..23 vector
      acc[r, v] = a[r, 0] * b[0, v]
  for k in 1..9
    for r in 0..3 unroll
      for v in 0..23 vector
        acc[r, v] += a[r, k] * b[k, v]
  for r in 0..3 unroll
    for v in 0..23 vector
      c[r, v] = acc[r, v]
)"},
      {"register_lanes_in_the_first_dimension", R"(input x: T[16, 5]
output y: T[5, 16]
register t: T[16, 5]
allocate t
  for j in 0..5 unroll
    for v in 0..16 vector
      t[v, j] = x[v, j]
  for j in 0..5 unroll
    for v in 0..16 vector
      y[j, v] = t[v, j] + t[v, 4 - j] * t[15 - v, j] + t[3, j]
)"},
      {"register_transposed_by_lanes", R"(input x: T[8, 8]
output y: T[8, 8]
register t: T[8, 8]
allocate t
  for i in 0..8 unroll
    for v in 0..8 vector
      t[i, v] = x[i, v]
  for i in 0..8 unroll
    for v in 0..8 vector
      y[i, v] = t[v, i]
)"},
      {"register_of_each_lane", R"(input x: T[20, 7]
output y: T[20]
register s: T[2]
for v in 0..20 vector
  allocate s
    s[0] = 0
    s[1] = -inf
    for k in 0..7
      s[0] += x[v, k]
      if k in 1..6
        s[1] max= x[v, k]
    y[v] = s[0] * s[1]
)"},
      {"register_of_a_loop_that_may_be_empty", R"(input x: T[6]
output y: T[6]
register s: T[1]
for i in 0..6
  allocate s
    s[0] = 1
    for k in 2..i
      s[0] += x[k]
    y[i] = s[0]
)"},
      {"vector_reduction", R"(input x: T[9, 45]
output sum: T[9]
output most: T[9]
output least: T[9]
output product: T[9]
for i in 0..9
  sum[i] = 0
  most[i] = -inf
  least[i] = inf
  product[i] = 1
  for v in 0..45 vector
    sum[i] += x[i, v]
    most[i] max= x[i, v]
    least[i] min= x[i, v]
    product[i] *= x[i, v] + 1
)"},
      {"vector_reduction_into_registers", R"(input x: T[70]
output y: T[1]
register part: T[16]
register s: T[1]
allocate part
  for v in 0..16 vector
    part[v] = 0
  for i in 0..5
    for v in 0..16 vector
      part[v] += x[16 * i + v] {16 * i + v in 0..70 else 0}
  allocate s
    s[0] = 0
    for v in 0..16 vector
      s[0] += part[v]
    y[0] = s[0]
)"},
      {"colliding_lanes", R"(input x: T[32]
output y: T[9]
output z: T[3]
for i in 0..9
  y[i] = 0
  z[i / 3] = -1
for v in 0..32 vector
  if v in 3..30
    y[v / 4] += x[v]
  z[v % 3] max= x[v]
)"},
      {"if_with_registers", R"(input x: T[30]
output y: T[30]
register s: T[1]
allocate s
  s[0] = 0
  for i in 0..30
    if i in 5..20, i % 3 in 1..3
      s[0] += x[i]
    y[i] = s[0]
)"},
      {"if_that_no_lane_may_enter", R"(input x: T[3]
output y: T[64]
for i in 0..4
  for v in 0..16 vector
    y[16 * i + v] = 0
    if 16 * i + v in 20..23
      y[16 * i + v] = x[16 * i + v - 20] + x[0]
)"},
      {"loops_inside_vector", R"(input x: T[40, 6]
output y: T[40]
for v in 0..40 vector
  y[v] = 0
  for k in 0..6
    y[v] += x[v, k]
)"},
      {"loop_bounds_of_the_lane_stay_scalar", R"(input x: T[12]
output y: T[12]
for v in 0..12 vector
  y[v] = 0
  for k in 0..v
    y[v] += x[k]
)"},
      {"temporary_of_a_vector_iteration", R"(input x: T[12]
output y: T[12]
temporary t: T[2]
for v in 0..12 vector
  allocate t
    t[0] = x[v]
    t[1] = t[0] * 2
    y[v] = t[1] + t[0]
)"},
      {"triangular_loops", R"(input x: T[10]
output y: T[10]
for i in 0..10
  y[i] = 0
  for j in i..2 * i - 3
    y[i] += x[j % 10]
)"},
      {"temporaries_share_memory", R"(input x: T[30]
output y: T[30]
temporary p: T[30]
temporary q: T[30]
temporary r: T[30]
allocate p
  for i in 0..30
    p[i] = x[29 - i]
  allocate q
    for i in 0..30
      q[i] = p[i] * 2
    for i in 0..30
      y[i] = q[i] - p[i]
  allocate r
    for i in 0..30 vector
      r[i] = p[29 - i]
    for i in 0..30
      y[i] += r[i]
)"},
      {"one_temporary_twice", R"(input x: T[8]
output y: T[8]
temporary p: T[3]
temporary t: T[8]
allocate t
  for i in 0..8
    t[i] = x[i]
  for i in 0..8
    y[i] = t[i]
allocate p
  p[0] = x[0]
  allocate t
    for i in 0..8
      t[i] = x[i] * 3
    for i in 0..8
      y[i] += t[i] + p[0]
)"},
      {"stores_are_seen_by_later_loads", R"(input x: T[16]
output y: T[16]
for i in 0..16 vector
  y[i] = x[i]
for i in 0..16 vector
  y[i] = y[i] + y[i] * x[i]
  y[i] += y[i]
for i in 1..16
  y[i] += y[i - 1]
)"},
      {"constants", R"(input x: T[2, 3]
output y: T[2]
constant k: T[3] = {1, -2.5, 0.125}
for i in 0..2
  y[i] = 0
  for j in 0..3
    y[i] += x[i, j] * k[j]
)"},
      {"convolution_3x3", R"(input x: T[3, 9, 10]
input k: T[5, 3, 3, 3]
output y: T[5, 9, 10]
register acc: T[5, 10]
for h in 0..9
  allocate acc
    for o in 0..5 unroll
      for w in 0..10 vector
        acc[o, w] = 0
    for c in 0..3
      for r in 0..3
        for q in 0..3
          for o in 0..5 unroll
            for w in 0..10 vector
              acc[o, w] += x[c, h + r - 1, w + q - 1] {h + r - 1 in 0..9, w + q - 1 in 0..10 else 0} * k[o, c, r, q]
    for o in 0..5 unroll
      for w in 0..10 vector
        y[o, h, w] = acc[o, w]
)"},
      {"strided_arguments", R"(input x: T[6, 20] strides[1, 9]
input z: T[6, 20] strides[-40, -2]
input s: T[6, 20] strides[0, 1]
output y: T[6, 20] strides[50, 2]
for i in 0..6
  for j in 0..20 vector
    y[i, j] = x[i, j] * z[i, j] + s[i, j]
)"},
      {"parallel_with_private_memory", R"(input x: T[33, 20]
output y: T[33, 20]
temporary whole: T[33]
temporary row: T[20]
allocate whole
  for i in 0..33
    whole[i] = x[i, 3]
  for g in 0..2
    for i in 0..33 parallel
      allocate row
        for j in 0..20 vector
          row[j] = x[i, j] * whole[i]
        for j in 0..20 vector
          y[i, j] = row[19 - j] + index(g)
)"},
      {"parallel_in_parallel", R"(input x: T[7, 9]
output y: T[7, 9]
for i in 0..7 parallel
  for j in 0..9 parallel
    y[i, j] = x[6 - i, 8 - j]
)"},
      {"parallel_over_runtime_bounds", R"(input x: T[20]
output y: T[20]
for i in 0..20
  y[i] = 0
for o in 0..4
  for i in 3 * o..4 * o + 2 parallel
    y[i] += x[i] * index(o + i)
)"},
      {"zero_extent", R"(input x: T[0, 4]
output y: T[4]
for j in 0..4 vector
  y[j] = 5
  for i in 0..0
    y[j] += x[i, j]
)"},
      {"select_and_logic", R"(input x: T[40]
output y: T[40]
for i in 0..40 vector
  y[i] = select(and(less(x[i], 0.5), or(less_equal(-0.5, x[i]), equal(x[i], 0))), x[i], select(not_equal(x[i], x[0]), -x[i] * 2, 7))
)"},
      {"not_a_number_spreads_through_max", R"(input x: T[40]
output y: T[40]
output m: T[1]
m[0] = -inf
for i in 0..40 vector
  y[i] = max(x[i] / 0 - x[i] / 0, x[i]) + min(1, x[i]) + relu(x[i] * inf * 0)
for i in 0..40 vector
  m[0] max= select(less(0.9, x[i]), 0 / (x[i] - x[i]), x[i])
)"},
  };
  return all;
}

inline std::string with_dtype(const WrittenCase& value, const std::string& dtype) {
  std::string text = "nest " + value.name + "\n" + value.text;
  for (std::size_t at = 0; (at = text.find(": T[", at)) != std::string::npos;) text.replace(at + 2, 1, dtype);
  // A minus in front of a name is written as a function.
  for (std::size_t at = 0; (at = text.find("-x[i] * 2", at)) != std::string::npos;)
    text.replace(at, 9, "negate(x[i]) * 2");
  return text;
}

}  // namespace syno::jit::testing_nests
