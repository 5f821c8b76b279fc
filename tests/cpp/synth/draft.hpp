// An operator as steps whose order is open, to take apart and put together: what a rule says it keeps
// instead.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "pgraph/pgraph.hpp"
#include "support/error.hpp"

namespace syno::synth::testing {

class Draft {
 public:
  struct Line {
    pgraph::Step step;
    std::vector<pgraph::CoordinateId> results;
  };
  std::vector<Line> lines;
  std::vector<pgraph::CoordinateId> input;

  explicit Draft(const pgraph::CompleteGraph& complete)
      : input(complete.input), signature_(complete.graph.signature()), further_(complete.further) {
    for (std::size_t t = 0; t < complete.graph.steps().size(); ++t)
      lines.push_back({complete.graph.steps()[t], complete.graph.results_of(t)});
    next_ = static_cast<std::uint32_t>(complete.graph.coordinate_count());
  }

  pgraph::CoordinateId fresh() { return static_cast<pgraph::CoordinateId>(next_++); }

  /// The line that yields a coordinate; null for an output dimension.
  Line* maker(pgraph::CoordinateId id) {
    for (Line& line : lines)
      if (has(line.results, id)) return &line;
    return nullptr;
  }

  /// `to` stands wherever an operand or the input was `from`; not where it is made.
  void replace(pgraph::CoordinateId from, pgraph::CoordinateId to) {
    const auto in = [&](std::vector<pgraph::CoordinateId>& ids) {
      std::replace(ids.begin(), ids.end(), from, to);
    };
    for (Line& line : lines) {
      in(line.step.operands);
      in(line.step.matched);
    }
    in(input);
    for (auto& ids : further_) in(ids);
  }

  /// In the first order in which the steps can be taken; weights stay in theirs where they share a
  /// coordinate.
  std::optional<pgraph::CompleteGraph> build() const {
    using pgraph::Primitive;
    pgraph::PGraph graph(signature_);
    std::map<pgraph::CoordinateId, pgraph::CoordinateId> ids;
    for (std::uint32_t c = 0; c < signature_.output.size(); ++c)
      ids[pgraph::CoordinateId{c}] = pgraph::CoordinateId{c};
    std::vector<bool> taken(lines.size());
    const auto ready = [&](std::size_t t) {
      const pgraph::Step& step = lines[t].step;
      const bool weight = step.primitive == Primitive::Contraction;
      for (const auto* list : {&step.operands, &step.matched}) {
        for (const auto id : *list) {
          if (!ids.contains(id)) return false;
          for (std::size_t u = 0; u < lines.size(); ++u) {
            const pgraph::Step& other = lines[u].step;
            const bool shares = other.primitive == Primitive::Contraction && has(other.operands, id);
            if (taken[u] || u == t || !shares) continue;
            if (!weight || list == &step.matched || u < t) return false;
          }
        }
      }
      return true;
    };
    try {
      for (std::size_t left = lines.size(); left > 0; --left) {
        std::size_t t = 0;
        while (t < lines.size() && (taken[t] || !ready(t))) ++t;
        if (t == lines.size()) return std::nullopt;
        pgraph::Step step = lines[t].step;
        for (auto* list : {&step.operands, &step.matched})
          for (auto& id : *list) id = ids.at(id);
        std::uint32_t first = static_cast<std::uint32_t>(graph.coordinate_count());
        graph = pgraph::apply_all(std::move(graph), {step});
        for (const auto id : lines[t].results) ids[id] = pgraph::CoordinateId{first++};
        taken[t] = true;
      }
      std::vector<pgraph::CoordinateId> read;
      for (const auto id : input) read.push_back(ids.at(id));
      return pgraph::complete(std::move(graph), std::move(read), {});
    } catch (const Error&) {
      return std::nullopt;
    } catch (const std::out_of_range&) {
      return std::nullopt;
    }
  }

  static bool has(const std::vector<pgraph::CoordinateId>& ids, pgraph::CoordinateId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }

 private:
  pgraph::Signature signature_;
  std::vector<std::vector<pgraph::CoordinateId>> further_;
  std::uint32_t next_ = 0;
};

}  // namespace syno::synth::testing
