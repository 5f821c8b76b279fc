#include "schedule/live.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::schedule {

using program::Program;
using program::Range;
using program::Scalar;
using symbolic::Live;

namespace {

constexpr const char* kLive = "sizes";
constexpr std::int64_t kLargestDivisor = 16;
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

std::int64_t end_of(const Program& program, const Range& range) {
  const auto end = symbolic::evaluate(program.arena, range.end, program.sizes, 0, {});
  SYNO_ASSERT(end, "a range of a concrete program is two integers");
  return *end;
}

std::int64_t at(const Live& live, std::int64_t size) {
  return floor_divide(live.times * size + live.plus, live.by);
}

/// Through all points (size, end); nothing where no function of the form goes.
std::optional<Live> fit(const std::vector<std::pair<std::int64_t, std::int64_t>>& points) {
  const auto [least, greatest] = std::minmax_element(points.begin(), points.end());
  const std::int64_t run = greatest->first - least->first, rise = greatest->second - least->second;
  if (run == 0) return std::nullopt;
  for (std::int64_t by = 1; by <= kLargestDivisor; ++by) {
    const std::int64_t near = floor_divide(rise * by, run);
    for (std::int64_t times = std::max<std::int64_t>(near - 1, 1); times <= near + 1; ++times) {
      for (std::int64_t more = 0; more < by; ++more) {
        if (times > INT32_MAX) continue;
        const std::int64_t plus = by * greatest->second + more - times * greatest->first;
        if (std::abs(plus) > INT32_MAX) continue;
        const Live live{1, static_cast<std::int32_t>(times), static_cast<std::int32_t>(plus),
                        static_cast<std::int32_t>(by)};
        if (std::all_of(points.begin(), points.end(),
                        [&](const auto& point) { return at(live, point.first) == point.second; }))
          return live;
      }
    }
  }
  return std::nullopt;
}

class Comparison {
 public:
  Comparison(const std::vector<Instance>& instances, const std::vector<std::string>& names)
      : instances_(instances), names_(names), made_(instances.front().program) {}

  Program run() {
    for (std::size_t i = 1; i < instances_.size(); ++i) same_but_for_ends(instances_[i]);
    for (std::size_t t = 0; t < made_.tensors.size(); ++t)
      for (std::size_t d = 0; d < made_.tensors[t].dims.size(); ++d)
        give(made_.tensors[t].dims[d], fmt::format("dimension {} of `{}`", d, made_.tensors[t].name),
             [&](const Program& program) -> const Range& { return program.tensors[t].dims[d]; });
    for (std::size_t s = 0; s < made_.scopes.size(); ++s) {
      for (auto group : {&program::Scope::traversal, &program::Scope::sums}) {
        auto& iterators = made_.scopes[s].*group;
        for (std::size_t i = 0; i < iterators.size(); ++i)
          give(iterators[i].range,
               fmt::format("`{}` of `{}`", iterators[i].name, made_.tensor(made_.scopes[s].output).name),
               [&](const Program& program) -> const Range& { return (program.scopes[s].*group)[i].range; });
      }
    }
    return std::move(made_);
  }

 private:
  [[noreturn]] void differ(const Instance& other, const std::string& what) const {
    std::string sizes;
    for (std::size_t i = 0; i < names_.size(); ++i)
      sizes += fmt::format("{}{} is {}", i ? ", " : "", names_[i], other.sizes.at(i));
    fail<ShapeError>(kLive,
                     "{} is another where {}: only extents may change with a size; compile for each size",
                     what, sizes);
  }

  bool same(const Program& b, symbolic::ExprId left, symbolic::ExprId right) const {
    const auto names = [](std::uint32_t slot) { return fmt::format("_{}", slot); };
    return symbolic::to_text(made_.arena, left, made_.sizes, names) ==
           symbolic::to_text(b.arena, right, b.sizes, names);
  }
  bool same_all(const Program& b, const std::vector<symbolic::ExprId>& left,
                const std::vector<symbolic::ExprId>& right) const {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [&](auto one, auto two) { return same(b, one, two); });
  }

  void same_but_for_ends(const Instance& other) const {
    const Program &a = made_, &b = other.program;
    if (a.tensors.size() != b.tensors.size() || a.scopes.size() != b.scopes.size() ||
        a.scalars.size() != b.scalars.size() || a.outputs != b.outputs)
      differ(other, "the program");
    for (std::size_t t = 0; t < a.tensors.size(); ++t)
      if (a.tensors[t].name != b.tensors[t].name || a.tensors[t].role != b.tensors[t].role ||
          a.tensors[t].dims.size() != b.tensors[t].dims.size() ||
          a.tensors[t].literal != b.tensors[t].literal)
        differ(other, fmt::format("`{}`", a.tensors[t].name));
    for (std::size_t i = 0; i < a.scalars.size(); ++i) {
      const Scalar &x = a.scalars[i], &y = b.scalars[i];
      if (x.kind != y.kind || x.function != y.function || x.a != y.a || x.b != y.b || x.c != y.c ||
          x.literal != y.literal || x.tensor != y.tensor || x.fill != y.fill)
        differ(other, "what is computed");
      if (x.kind == program::ScalarKind::Index && !same(b, x.index, y.index)) differ(other, "an index");
      if (!same_all(b, x.indices, y.indices))
        differ(other, fmt::format("an index of `{}`", a.tensor(x.tensor).name));
    }
    for (std::size_t s = 0; s < a.scopes.size(); ++s) {
      const program::Scope &x = a.scopes[s], &y = b.scopes[s];
      const auto alike = [](const auto& left, const auto& right) {
        return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                          [](const auto& one, const auto& two) { return one.slot == two.slot; });
      };
      if (x.output != y.output || x.reduction != y.reduction || x.body != y.body ||
          !alike(x.traversal, y.traversal) || !alike(x.sums, y.sums) || !same_all(b, x.target, y.target))
        differ(other, fmt::format("how `{}` is computed", a.tensor(x.output).name));
    }
  }

  template <class Get>
  void give(Range& range, const std::string& what, const Get& get) {
    bool changes = false;
    for (const Instance& instance : instances_) {
      const Range& other = get(instance.program);
      if (!same(instance.program, range.begin, other.begin)) differ(instance, "where " + what + " begins");
      changes = changes || end_of(instance.program, other) != end_of(made_, range);
    }
    if (!changes) return;
    for (std::size_t p = 0; p < names_.size(); ++p) {
      std::vector<std::pair<std::int64_t, std::int64_t>> points;
      for (const Instance& instance : instances_)
        points.emplace_back(instance.sizes.at(p), end_of(instance.program, get(instance.program)));
      if (auto found = fit(points)) {
        found->parameter = static_cast<std::uint32_t>(p + 1);
        range.live = *found;
        return;
      }
    }
    std::string ends;
    for (const Instance& instance : instances_)
      ends += fmt::format("{}{}", ends.empty() ? "" : ", ", end_of(instance.program, get(instance.program)));
    fail<ShapeError>(
        kLive,
        "the extent of {} ({} at the sizes tried) is no (a * size + b) / c of one of the sizes {}; "
        "compile for each size",
        what, ends, fmt::join(names_, ", "));
  }

  const std::vector<Instance>& instances_;
  const std::vector<std::string>& names_;
  Program made_;
};

}  // namespace

Program with_live_ends(const std::vector<Instance>& instances, const std::vector<std::string>& names) {
  SYNO_ASSERT(!instances.empty(), "a family has members");
  for (const Instance& instance : instances) {
    if (!instance.program.concrete())
      fail<ShapeError>(kLive, "a program has symbolic sizes; take it at() one valuation");
    for (const std::int64_t size : instance.sizes)
      if (size < 1 || size > kLargestSize)
        fail<ShapeError>(kLive, "a size is {}; sizes are from 1 to 2^30", size);
    if (instance.sizes.size() != names.size())
      fail<ShapeError>(kLive, "{} values for the {} sizes {}", instance.sizes.size(), names.size(),
                       fmt::join(names, ", "));
  }
  return Comparison(instances, names).run();
}

std::string live_ends(const program::Program& program) {
  std::string text;
  const auto add = [&](const std::string& what, const program::Range& range) {
    const symbolic::Live& live = range.live;
    if (live.parameter != 0)
      text += fmt::format("{}: ({} * {} + {}) / {}\n", what, live.times, live.parameter, live.plus, live.by);
  };
  for (const program::Tensor& tensor : program.tensors)
    for (std::size_t d = 0; d < tensor.dims.size(); ++d)
      add(fmt::format("{}[{}]", tensor.name, d), tensor.dims[d]);
  for (const program::Scope& scope : program.scopes) {
    const std::string& name = program.tensor(scope.output).name;
    for (const program::Iterator& iterator : scope.traversal) add(name + ' ' + iterator.name, iterator.range);
    for (const program::Iterator& iterator : scope.sums) add(name + ' ' + iterator.name, iterator.range);
  }
  return text;
}

}  // namespace syno::schedule
