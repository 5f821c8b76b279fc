// Programs of several scopes on images, by lot.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "program/text.hpp"
#include "schedule/fixture.hpp"

namespace syno::construct {

using namespace schedule;

/// Stages of images with a batch, one after the other: windows with steps, mixes of channels, pools, sums of
/// rows that two scopes read, residual sums, enlargements; some also outputs.
inline program::Program random_stages(Random& random) {
  program::ParseOptions options;
  std::string text;
  struct Image {
    std::string name;
    std::int64_t c, h, w;
  };
  Image at{"x", draw(random, 1, 5), draw(random, 2, 11), draw(random, 2, 13)};
  const std::int64_t count = draw(random, 2, 4);
  const std::int64_t batch = draw(random, 1, 3);
  options.shapes["x"] = {batch, at.c, at.h, at.w};
  for (std::int64_t stage = 0; stage < count; ++stage) {
    const std::string id = std::to_string(stage);
    Image next{"t" + id, at.c, at.h, at.w};
    const auto kind = random.below(7);
    const std::int64_t step = draw(random, 1, 2), pad = draw(random, 0, 2);
    if (kind == 0 || kind == 3) next.h = (at.h + step - 1) / step, next.w = (at.w + step - 1) / step;
    if (kind == 1) next.c = draw(random, 1, 9);
    if (kind == 5) next.h = 2 * at.h, next.w = 2 * at.w;
    for (const auto& [name, size] :
         {std::pair{"n" + id, batch}, {"c" + id, next.c}, {"h" + id, next.h}, {"w" + id, next.w}})
      options.sizes[name] = size;
    const std::string to = fmt::format("[n{0},c{0},h{0},w{0}]", id);
    const auto window = [&] {
      return fmt::format("{0}[n{1},c{1},{2}*h{1}+r{1}-{3},{2}*w{1}+s{1}-{3}]", at.name, id, step, pad);
    };
    const auto here = [&](const std::string& name) { return name + to; };
    if (kind == 0 || kind == 3) options.sizes["s" + id] = 3;
    if (kind == 0 || kind == 3 || kind == 6) options.sizes["r" + id] = 3;
    switch (kind) {
      case 0:
        text += fmt::format("{} = sum[r{},s{}] {} * f{}[c{},r{},s{}]; ", here(next.name), id, id, window(),
                            id, id, id, id);
        break;
      case 1:
        options.sizes["d" + id] = at.c;
        text += fmt::format("{} = sum[d{}] {}[n{},d{},h{},w{}] * g{}[c{},d{}]; ", here(next.name), id,
                            at.name, id, id, id, id, id, id, id);
        break;
      case 2:
        text += fmt::format("{} = exp({}); ", here(next.name), here(at.name));
        break;
      case 3:
        text += fmt::format("{} = max[r{},s{}] {}; ", here(next.name), id, id, window());
        break;
      case 4:  // two readers
        options.sizes["v" + id] = at.w;
        text += fmt::format("m{1}[n{1},c{1},h{1}] = max[v{1}] {0}[n{1},c{1},h{1},v{1}]; ", at.name, id);
        text +=
            fmt::format("{} = exp({} - m{}[n{},c{},h{}]); ", here(next.name), here(at.name), id, id, id, id);
        break;
      case 5:
        text += fmt::format("{} = {}[n{},c{},h{}/2,w{}/2] + 1; ", here(next.name), at.name, id, id, id, id);
        break;
      default:
        next.h = at.h;
        text += fmt::format(
            "u{0}[n{0},c{0},h{0},w{0}] = sum[r{0}] {1}[n{0},c{0},h{0}+r{0}-{2},w{0}] * q{0}[r{0}]; ", id,
            at.name, pad);
        text += fmt::format("{} = relu({}) + {}; ", here(next.name), here("u" + id), here(at.name));
    }
    at = next;
  }
  text += random.below(3) ? "return t" + std::to_string(count - 1)
                          : fmt::format("return t{}, t{}",
                                        random.below(static_cast<std::uint64_t>(count - 1)), count - 1);
  return program::parse(text, options);
}

}  // namespace syno::construct
