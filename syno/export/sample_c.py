"""Samples between the elements of a tensor as C."""

from __future__ import annotations


def sample_function(name: str, dtype: str, kind: str) -> str:
    """The engine's `sample` on elements of one type, as `cpp/graph/sample.cpp` has it.

    Args:
        kind: the type of C that holds them.
    """
    real, end = ("double", "") if dtype == "float64" else ("float", "f")
    read, write = ("(", "(") if dtype != "bfloat16" else ("from_bfloat16(", "to_bfloat16(")
    return f"""\
#include <math.h>
static {real} {name}_met({real} c, int64_t extent, int padding, int align) {{
  const {real} last = ({real})(extent - 1);
  if (padding == 0) return c;
  if (padding == 2) {{
    const {real} low = align ? 0 : -0.5{end}, span = align ? last : ({real})extent;
    if (span == 0) {{
      c = 0 * c;
    }} else {{
      const {real} away = fabs{end}(c - low), extra = fmod{end}(away, span), times = floor{end}(away / span);
      c = fmod{end}(times, 2) == 0 ? extra + low : span - extra + low;
    }}
  }}
  return c < 0 ? 0 : c > last ? last : c;
}}
static {real} {name}_cubic({real} away) {{
  return away <= 1 ? (1.25{end} * away - 2.25{end}) * away * away + 1
                   : ((-0.75{end} * away + 3.75{end}) * away - 6) * away + 3;
}}
/* mode: nearest, bilinear, bicubic; padding: zeros, border, reflection */
static void {name}(const {kind}* x, const {kind}* grid, {kind}* y, int rank, const int64_t* shape, int64_t places,
                   int mode, int padding, int align) {{
  const int axes = rank - 2, taps = mode == 0 ? 1 : 2 * mode;
  int64_t elements = 1;
  int neighbours = 1;
  for (int d = 0; d < axes; ++d) elements *= shape[2 + d], neighbours *= taps;
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t p = 0; p < places; ++p) {{
      int64_t at[3][4];
      {real} weight[3][4];
      for (int d = 0; d < axes; ++d) {{
        const int64_t extent = shape[2 + d];
        const {real} g = {read}grid[(n * places + p) * axes + axes - 1 - d]), last = ({real})(extent - 1);
        {real} c = align ? (g + 1) * (last / 2) : ((g + 1) * ({real})extent - 1) / 2;
        if (mode != 2) c = {name}_met(c, extent, padding, align);
        if (mode == 0) c = rint{end}(c);
        const {real} first = floor{end}(c), t = c - first;
        for (int k = 0; k < taps; ++k) {{
          {real} place = first + ({real})(mode == 2 ? k - 1 : k);
          weight[d][k] = mode == 0 ? 1 : mode == 1 ? (k ? t : 1 - t) : {name}_cubic(fabs{end}(t - ({real})(k - 1)));
          if (mode == 2) place = {name}_met(place, extent, padding, align);
          at[d][k] = place >= 0 && place <= last ? (int64_t)place : -1;
        }}
      }}
      for (int64_t channel = 0; channel < shape[1]; ++channel) {{
        const {kind}* from = x + (n * shape[1] + channel) * elements;
        {real} sum = 0;
        for (int k = 0; k < neighbours; ++k) {{
          int64_t place = 0;
          {real} part = 1;
          int inside = 1, step = neighbours;
          for (int d = 0; d < axes; ++d) {{
            step /= taps;
            const int tap = k / step % taps;
            inside = inside && at[d][tap] >= 0;
            place = place * shape[2 + d] + at[d][tap];
            part *= weight[d][tap];
          }}
          if (inside) sum += {read}from[place]) * part;
        }}
        y[(n * shape[1] + channel) * places + p] = {write}sum);
      }}
    }}
}}
"""
