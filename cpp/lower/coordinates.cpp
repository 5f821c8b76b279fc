#include "lower/coordinates.hpp"

#include <algorithm>
#include <cctype>

#include "support/error.hpp"

namespace syno::lower {
namespace {

using pgraph::Primitive;

std::size_t number(pgraph::CoordinateId id) { return static_cast<std::size_t>(id); }

std::vector<std::size_t> numbers(const std::vector<pgraph::CoordinateId>& ids) {
  std::vector<std::size_t> result;
  for (const auto id : ids) result.push_back(number(id));
  return result;
}

bool is_view(Primitive primitive) {
  return primitive != Primitive::Reduce && primitive != Primitive::Contraction &&
         primitive != Primitive::Expand;
}

/// `C_in` sums over `c`, `k_1` over `k`: the first letter of the first variable, or `r` for a plain number.
std::string letter_of(const symbolic::Size& size, const symbolic::Sizes& sizes) {
  for (std::size_t v = 0; v < sizes.variables().size(); ++v) {
    if (size.exponent(v) == 0) continue;
    const char first =
        static_cast<char>(std::tolower(static_cast<unsigned char>(sizes.variables()[v].name[0])));
    if (std::isalpha(static_cast<unsigned char>(first))) return std::string(1, first);
  }
  return "r";
}

/// Names that are letters, digits and underscores; anything else would not parse back.
std::string cleaned(const std::string& name) {
  std::string result;
  for (const char c : name) result += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : '_';
  if (result.empty() || std::isdigit(static_cast<unsigned char>(result[0]))) result = "i" + result;
  return result;
}

}  // namespace

Coordinates::Coordinates(const pgraph::CompleteGraph& complete) : graph(&complete) {
  const pgraph::PGraph& pgraph = complete.graph;
  const auto& steps = pgraph.steps();
  operands.resize(steps.size());
  results.resize(steps.size());
  for (std::size_t c = 0; c < pgraph.coordinate_count(); ++c) {
    const pgraph::Coordinate& coordinate = pgraph.coordinate(static_cast<pgraph::CoordinateId>(c));
    CoordinateInfo info;
    info.extent = coordinate.extent;
    info.origin = coordinate.step;
    all.push_back(std::move(info));
  }
  for (std::size_t d = 0; d < pgraph.signature().output.size(); ++d) outputs.push_back(d);
  inputs = numbers(complete.input);
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    all[inputs[d]].top = Top::Input;
    all[inputs[d]].consumer = d;
  }
  std::size_t weight = 0;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    results[s] = numbers(pgraph.results_of(s));
    if (steps[s].primitive == Primitive::Contraction) {
      const std::size_t source = steps[s].source;
      const auto& dims = source == 0 ? pgraph.weights()[weight++] : complete.further[source - 1];
      for (const pgraph::CoordinateId id : dims) all[number(id)].factors.push_back(factors.size());
      factors.push_back({false, s, numbers(dims)});
      continue;
    }
    operands[s] = numbers(steps[s].operands);
    if (steps[s].primitive == Primitive::Reduce) reduces.push_back(s);
    if (!is_view(steps[s].primitive)) continue;
    for (const std::size_t c : operands[s]) {
      all[c].top = Top::View;
      all[c].consumer = s;
    }
  }
  // A coordinate that leaves the data ends at its weights, if it has any. A view's results have greater
  // numbers than its operands, so that descending order sees them first.
  for (std::size_t c = all.size(); c-- > 0;) {
    CoordinateInfo& info = all[c];
    if (info.top == Top::View) {
      const std::size_t view = info.consumer;
      const bool dead = std::all_of(results[view].begin(), results[view].end(),
                                    [&](std::size_t r) { return all[r].top == Top::Nothing; });
      if (!dead) continue;
      if (steps[view].primitive == Primitive::Unfold) {
        auto clip = std::find_if(factors.begin(), factors.end(),
                                 [&](const Factor& factor) { return factor.clip && factor.step == view; });
        if (clip == factors.end()) clip = factors.insert(clip, {true, view, operands[view]});
        info.factors.push_back(static_cast<std::size_t>(clip - factors.begin()));
      }
      info.top = Top::Nothing;
    }
    if (info.top == Top::Nothing && !info.factors.empty()) info.top = Top::Weights;
  }

  const auto& sizes = pgraph.signature().sizes;
  for (std::size_t c = 0; c < all.size(); ++c) {
    CoordinateInfo& info = all[c];
    if (!info.origin) {
      info.name = cleaned(pgraph.signature().output[c].name);
    } else if (steps[*info.origin].primitive == Primitive::Reduce) {
      info.name = letter_of(info.extent, sizes);
    } else {
      info.name = all[operands[*info.origin].front()].name;
    }
  }
}

}  // namespace syno::lower
