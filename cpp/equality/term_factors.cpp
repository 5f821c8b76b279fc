#include "equality/term_factors.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "equality/small_sizes.hpp"
#include "support/error.hpp"
#include "support/mix.hpp"

namespace syno::equality {
namespace {

/// Points of a factor that is listed, in a fifteenth of a second. Of 7,000 sampled operators as many are
/// equal as with 32 times the points.
constexpr std::size_t kMostPoints = std::size_t{1} << 17;
constexpr std::size_t kMostCached = std::size_t{1} << 16;  ///< factors; then the cache starts anew
constexpr std::int64_t kMostCyclic = 64;  ///< extent of a dimension through which closed walks are counted
constexpr std::size_t kMostNamings = 720;
constexpr double kMostListed = 1 << 19;  ///< points of a factor over all the namings it is listed for

std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return split_mix(a * kGoldenGamma + b); }

/// Pseudo-random, not 0.
std::uint64_t label_of(std::uint64_t name, std::size_t which, std::int64_t value) {
  return mix(mix(name, which), static_cast<std::uint64_t>(value)) % (kPrime - 1) + 1;
}

/// Numbers values as they are first seen.
class Numbers {
 public:
  std::uint32_t operator()(std::int64_t value) {
    if (value >= 0 && value < kDirect) {
      const auto at = static_cast<std::size_t>(value);
      if (at >= direct_.size()) direct_.resize(at + at / 2 + 16, 0);
      if (direct_[at] == 0) direct_[at] = ++count_;
      return direct_[at] - 1;
    }
    const auto [place, is_new] = others_.try_emplace(value, count_);
    count_ += is_new;
    return place->second;
  }
  std::uint32_t count() const { return count_; }

 private:
  static constexpr std::int64_t kDirect = 1 << 16;
  std::vector<std::uint32_t> direct_;
  std::unordered_map<std::int64_t, std::uint32_t> others_;
  std::uint32_t count_ = 0;
};

}  // namespace

OperatorKeyCache::OperatorKeyCache() : state_(std::make_unique<State>()) {}
OperatorKeyCache::~OperatorKeyCache() = default;
OperatorKeyCache::OperatorKeyCache(OperatorKeyCache&&) noexcept = default;
OperatorKeyCache& OperatorKeyCache::operator=(OperatorKeyCache&&) noexcept = default;

const symbolic::Sizes& small_sizes_of(const symbolic::Sizes& sizes, OperatorKeyCache& cache) {
  Hasher hasher;
  hasher.add(static_cast<std::uint64_t>(sizes.variables().size()));
  for (const symbolic::Variable& variable : sizes.variables()) hasher.add(variable.kind);
  for (std::size_t v = 0; v < sizes.valuation_count(); ++v) {
    for (const std::int64_t value : sizes.valuation(v)) hasher.add(value);
  }
  const Hash128 id = hasher.finish();
  auto& known = cache.state().sizes;
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const auto& pair) { return pair.first == id; });
  if (found != known.end()) return found->second;
  if (known.size() == 16) known.clear();
  return known.emplace_back(id, small_sizes(sizes)).second;
}

Hash128 TermSpace::key(OperatorKeyCache& cache) const { return TermFactors(*this, cache.state()).key(); }

/// Splits an index of which only equality counts into nodes that say the same.
void TermFactors::unwrap(TermNode id, Role& role) const {
  const TermSpace::Node& node = space_.nodes_[id];
  if (node.support == 0) return;
  const auto& nodes = space_.nodes_;
  const std::size_t rows = space_.rows_;
  switch (node.op) {
    case TermOp::Scale: {
      bool injective = true;
      for (std::size_t r = 0; r < rows; ++r) injective &= node.parameter[r] != 0;
      if (injective) return unwrap(node.a, role);
      break;
    }
    case TermOp::Inside:  // the guard counts for itself
      return unwrap(node.a, role);
    case TermOp::Add: {
      for (const auto& [a, b] : {std::pair{node.a, node.b}, std::pair{node.b, node.a}}) {
        if (nodes[a].support == 0) return unwrap(b, role);
        if (nodes[a].op != TermOp::Scale) continue;
        bool apart = true;  // a moves in steps that b stays within
        for (std::size_t r = 0; r < rows; ++r)
          apart &= nodes[b].most[r] - nodes[b].least[r] < std::abs(nodes[a].parameter[r]);
        if (!apart) continue;
        unwrap(a, role);
        return unwrap(b, role);
      }
      break;
    }
    case TermOp::Modulo: {  // a rotation
      const TermSpace::Node& inner = nodes[node.a];
      bool rotates = true;
      for (std::size_t r = 0; r < rows; ++r) rotates &= inner.most[r] - inner.least[r] < node.parameter[r];
      if (rotates) return unwrap(node.a, role);
      break;
    }
    default:
      break;
  }
  role.nodes.push_back(id);
}

void TermFactors::find_roles() {
  const auto read_again = [&](std::uint32_t read) {
    return read != 0 && std::count_if(space_.reads_.begin() + 1, space_.reads_.end(), [&](const auto& other) {
                          return other.tensor == space_.reads_[read].tensor &&
                                 other.weight == space_.reads_[read].weight;
                        }) > 1;
  };
  for (std::uint32_t read = 0; read < space_.reads_.size(); ++read) {
    if (!space_.reads_[read].weight) continue;
    roles_.push_back({read, 0, true, {}, {}});
  }
  for (const TermSpace::Dimension& dimension : space_.dimensions_) {
    const bool weight = space_.reads_[dimension.read].weight;
    if (!weight && !dimension.unordered) {
      places_.push_back({dimension.read, dimension.number, dimension.index});
      continue;
    }
    if (!weight) roles_.push_back({dimension.read, dimension.number, false, {}, {}});
    Role& role = weight ? *std::find_if(roles_.begin(), roles_.end(),
                                        [&](const Role& r) { return r.weight && r.read == dimension.read; })
                        : roles_.back();
    if (read_again(dimension.read)) {
      role.nodes.push_back(dimension.index);  // compared with the other reads by value
    } else {
      unwrap(dimension.index, role);
    }
  }
}

/// Every renaming of weights among themselves and of the reads of one tensor.
void TermFactors::choose_namings() {
  const auto& reads = space_.reads_;
  Naming first(reads.size());
  std::vector<std::uint32_t> weights;
  std::map<std::pair<bool, std::uint32_t>, std::vector<std::uint32_t>> reads_of;
  for (std::uint32_t r = 1; r < reads.size(); ++r) {
    auto& same = reads_of[{reads[r].weight, reads[r].tensor}];
    first[r].read = static_cast<std::uint32_t>(same.size());
    if (!reads[r].weight) first[r].tensor = 1 + reads[r].tensor;
    if (reads[r].weight && same.empty()) weights.push_back(reads[r].tensor);
    same.push_back(r);
  }
  namings_.assign(1, first);
  const auto extend = [&](std::size_t count, const auto& rename) {
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    std::vector<Naming> extended;
    do {
      for (const Naming& naming : namings_) rename(extended.emplace_back(naming), order);
    } while (extended.size() <= kMostNamings && std::next_permutation(order.begin(), order.end()));
    if (extended.size() > kMostNamings) {
      fail<VerifyError>("operator_key", "{} weights and repeated reads can be exchanged in more than {} ways",
                        reads.size() - 1, kMostNamings);
    }
    namings_ = std::move(extended);
  };
  if (!weights.empty()) {
    extend(weights.size(), [&](Naming& naming, const std::vector<std::uint32_t>& order) {
      for (std::size_t w = 0; w < weights.size(); ++w) {
        for (const std::uint32_t r : reads_of[{true, weights[w]}]) naming[r].tensor = 0x10000 + order[w];
      }
    });
  }
  for (const auto& [tensor, same] : reads_of) {
    if (same.size() < 2) continue;
    extend(same.size(), [&, &list = same](Naming& naming, const std::vector<std::uint32_t>& order) {
      for (std::size_t i = 0; i < list.size(); ++i) naming[list[i]].read = order[i];
    });
  }
}

/// By role: its place when roles are sorted by their names.
std::vector<std::uint32_t> TermFactors::order_of(const Naming& naming) const {
  std::vector<std::uint32_t> sorted(roles_.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  const auto name = [&](std::uint32_t r) {
    const Role& role = roles_[r];
    return std::tuple{naming[role.read].tensor, naming[role.read].read, role.dimension};
  };
  std::sort(sorted.begin(), sorted.end(), [&](auto a, auto b) { return name(a) < name(b); });
  std::vector<std::uint32_t> order(sorted.size());
  for (std::uint32_t i = 0; i < sorted.size(); ++i) order[sorted[i]] = i;
  return order;
}

void TermFactors::choose_patterns() {
  const auto order = order_of(namings_.front());
  std::vector<Role> sorted(roles_.size());
  for (std::size_t r = 0; r < roles_.size(); ++r) sorted[order[r]] = std::move(roles_[r]);
  roles_ = std::move(sorted);
  RoleKinds kinds;
  kinds.count = roles_.size();
  if (kinds.count > 16) {
    fail<VerifyError>("operator_key", "operators with more than 16 weights and unordered dimensions, here {}",
                      kinds.count);
  }
  for (std::uint32_t r = 0; r < roles_.size(); ++r) {
    for (const TermNode node : roles_[r].nodes) roles_[r].supports.push_back(space_.nodes_[node].support);
    if (roles_[r].weight) continue;
    std::int64_t extent = 1;
    for (const TermSpace::Dimension& d : space_.dimensions_) {
      if (d.read != roles_[r].read || d.number != roles_[r].dimension) continue;
      for (std::size_t row = 0; row < space_.rows_; ++row)
        extent = std::max(extent, space_.nodes_[d.index].most[row] + 1);
    }
    if (extent <= kMostCyclic) kinds.cyclic |= 1u << r;
  }
  const auto& reads = space_.reads_;
  for (std::uint32_t r = 0; r < roles_.size(); ++r) {
    for (std::uint32_t s = 0; s < roles_.size(); ++s) {
      if (r == s || roles_[r].read == 0 || roles_[s].read == 0) continue;
      const auto &a = reads[roles_[r].read], &b = reads[roles_[s].read];
      if (a.tensor == b.tensor && a.weight == b.weight && roles_[r].dimension == roles_[s].dimension &&
          roles_[r].read != roles_[s].read) {
        kinds.crossed.emplace_back(r, s);
      }
    }
  }
  for (const auto& [r, s] : kinds.crossed) {
    for (std::size_t i = 0; i < roles_[r].nodes.size(); ++i)
      roles_[r].supports[i] |= space_.nodes_[roles_[s].nodes[i]].support;
  }
  kinds_id_ = {kinds.count, kinds.cyclic};
  for (const auto& [r, s] : kinds.crossed) kinds_id_.push_back(static_cast<std::uint64_t>(r) << 32 | s);
  auto found = cache_.patterns.find(kinds_id_);
  if (found == cache_.patterns.end())
    found = cache_.patterns.emplace(kinds_id_, KnownPatterns{PatternTable(kinds), {}}).first;
  patterns_ = &found->second;
}

void TermFactors::unite(std::uint64_t support) {
  if (support == 0) return;
  std::size_t kept = 0;
  for (std::size_t f = 0; f < factors_.size(); ++f) {
    if (factors_[f].iterators & support) {
      support |= factors_[f].iterators;
    } else {
      if (kept != f) factors_[kept] = std::move(factors_[f]);
      ++kept;
    }
  }
  factors_.resize(kept);
  factors_.push_back({support, {}});
}

void TermFactors::find_factors() {
  for (std::size_t i = 0; i < space_.iterators_.size(); ++i) unite(std::uint64_t{1} << i);
  for (const Place& place : places_) unite(space_.nodes_[place.node].support);
  for (const TermNode guard : space_.guards_) unite(space_.nodes_[guard].support);
  for (const Role& role : roles_) {
    for (const std::uint64_t support : role.supports) unite(support);
  }
  const auto still = [](std::uint64_t support) { return support == 0; };
  const auto node_still = [&](TermNode node) { return space_.nodes_[node].support == 0; };
  const bool any_still = std::any_of(places_.begin(), places_.end(),
                                     [&](const Place& place) { return node_still(place.node); }) ||
                         std::any_of(space_.guards_.begin(), space_.guards_.end(), node_still) ||
                         std::any_of(roles_.begin(), roles_.end(), [&](const Role& role) {
                           return std::any_of(role.supports.begin(), role.supports.end(), still);
                         });
  if (any_still) factors_.emplace_back();
}

std::vector<std::uint64_t> TermFactors::label_names(const Naming& naming) const {
  std::vector<std::uint64_t> names;
  for (const Place& place : places_) {
    const Name& name = naming[place.read];
    names.push_back(static_cast<std::uint64_t>(name.tensor) << 32 | name.read << 16 | place.dimension);
  }
  return names;
}

void TermFactors::describe_node(TermNode id, Factor& factor) {
  if (local_[id] != 0) {
    text_.push_back(local_[id]);
    return;
  }
  const TermSpace::Node& node = space_.nodes_[id];
  if (node.op == TermOp::Iterator) factor.order.push_back(node.a);
  const bool has_parameter = node.op != TermOp::Add;
  local_[id] = static_cast<std::uint32_t>(text_.size() + 1);
  text_.push_back(static_cast<std::uint64_t>(node.op) << 32);
  for (std::size_t r = 0; r < space_.rows_ && has_parameter; ++r)
    text_.push_back(static_cast<std::uint64_t>(node.parameter[r]));
  if (node.op != TermOp::Iterator && node.op != TermOp::Constant) describe_node(node.a, factor);
  if (node.op == TermOp::Add) describe_node(node.b, factor);
}

/// What the counts of a factor depend on, with its iterators in the order the coordinates name them.
Hash128 TermFactors::describe(Factor& factor, std::span<const std::uint64_t> labels) {
  text_ = kinds_id_;
  text_.push_back(space_.rows_);
  local_.assign(space_.nodes_.size(), 0);
  factor.order.clear();
  const auto here = [&](TermNode node) { return factor.holds(space_.nodes_[node].support); };
  for (std::size_t p = 0; p < places_.size(); ++p) {
    if (!here(places_[p].node)) continue;
    text_.push_back(std::uint64_t{1} << 56);
    text_.push_back(labels[p]);
    describe_node(places_[p].node, factor);
  }
  for (std::uint32_t r = 0; r < roles_.size(); ++r) {
    for (std::size_t i = 0; i < roles_[r].nodes.size(); ++i) {
      if (!factor.holds(roles_[r].supports[i])) continue;
      text_.push_back(std::uint64_t{2} << 56 | r);
      describe_node(roles_[r].nodes[i], factor);
    }
  }
  for (const TermNode guard : space_.guards_) {
    if (!here(guard)) continue;
    text_.push_back(std::uint64_t{3} << 56);
    describe_node(guard, factor);
  }
  return hash_bytes(text_.data(), text_.size() * sizeof(text_[0]));
}

/// How many points a factor has at the valuation where it has most.
double TermFactors::points_of(const Factor& factor) const {
  double most = 0;
  for (std::size_t row = 0; row < space_.rows_; ++row) {
    double here = 1;
    for (const std::uint32_t i : factor.order)
      here *= static_cast<double>(space_.nodes_[space_.iterators_[i]].parameter[row]);
    most = std::max(most, here);
  }
  return most;
}

/// By node: the last one of the factor described that is over it; its own number where its values are kept.
std::vector<TermNode> TermFactors::last_uses() const {
  std::vector<TermNode> last(space_.nodes_.size(), 0);
  for (TermNode id = 0; id < last.size(); ++id) {
    const TermSpace::Node& node = space_.nodes_[id];
    if (local_[id] == 0 || node.op == TermOp::Iterator || node.op == TermOp::Constant) continue;
    last[node.a] = id;
    if (node.op == TermOp::Add) last[node.b] = id;
  }
  for (const Place& place : places_) last[place.node] = place.node;
  for (const Role& role : roles_)
    for (const TermNode node : role.nodes) last[node] = node;
  return last;
}

/// The terms of a factor at one valuation.
void TermFactors::list(const Factor& factor, std::size_t row, std::span<const std::uint64_t> labels,
                       TermTable& terms) {
  const auto& nodes = space_.nodes_;
  std::size_t points = 1;
  std::vector<std::size_t> inner(64, 0);
  for (const std::uint32_t i : factor.order) {
    inner[i] = points;
    points *= static_cast<std::size_t>(nodes[space_.iterators_[i]].parameter[row]);
  }
  std::vector<std::vector<std::int64_t>> values(nodes.size());
  std::vector<bool> alive(points, true);
  const std::vector<TermNode> last = last_uses();
  for (TermNode id = 0; id < nodes.size(); ++id) {  // operands come first
    if (local_[id] == 0) continue;
    const TermSpace::Node& node = nodes[id];
    std::vector<std::int64_t>& out = values[id];
    const std::int64_t parameter = node.parameter[row];
    const bool over_one = node.op != TermOp::Iterator && node.op != TermOp::Constant;
    // What nobody looks at again is changed in place, or given back at once.
    const auto taken = [&] { return last[node.a] == id ? std::move(values[node.a]) : values[node.a]; };
    switch (node.op) {
      case TermOp::Iterator:
        out.resize(points);
        for (std::size_t p = 0; p < points; ++p)
          out[p] = static_cast<std::int64_t>(p / inner[node.a] % static_cast<std::size_t>(parameter));
        break;
      case TermOp::Constant:
        out.assign(points, parameter);
        break;
      case TermOp::Add:
        if (node.a == node.b)
          out = values[node.a];
        else
          out = taken();
        for (std::size_t p = 0; p < points; ++p) out[p] += node.a == node.b ? out[p] : values[node.b][p];
        break;
      case TermOp::Scale:
        out = taken();
        for (std::int64_t& value : out) value *= parameter;
        break;
      case TermOp::Divide:
        out = taken();
        for (std::int64_t& value : out) value = floor_divide(value, parameter);
        break;
      case TermOp::Modulo:
        out = taken();
        for (std::int64_t& value : out) value = floor_modulo(value, parameter);
        break;
      case TermOp::Inside:
        out = taken();
        for (std::size_t p = 0; p < points; ++p) {
          if (out[p] < 0 || out[p] >= parameter) alive[p] = false;
        }
        break;
    }
    if (over_one && last[node.a] == id) values[node.a] = {};
    if (node.op == TermOp::Add && last[node.b] == id) values[node.b] = {};
  }
  std::vector<std::uint32_t> kept;
  for (std::uint32_t p = 0; p < points; ++p) {
    if (alive[p]) kept.push_back(p);
  }
  terms.size = kept.size();
  terms.roles.assign(roles_.size(), {});
  for (auto& label : terms.labels) label.clear();
  if (kept.empty()) return;
  std::vector<std::uint64_t> table;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const TermNode node = places_[i].node;
    if (!factor.holds(nodes[node].support)) continue;
    const std::int64_t least = nodes[node].least[row];
    for (std::size_t which = 0; which < TermTable::kLabels; ++which) {
      std::vector<std::uint64_t>& label = terms.labels[which];
      if (label.empty()) label.assign(kept.size(), 1);
      // Coordinates that lie far apart have more values between them than terms.
      if (static_cast<std::uint64_t>(nodes[node].most[row]) - static_cast<std::uint64_t>(least) >
          2 * kept.size()) {
        for (std::size_t t = 0; t < kept.size(); ++t)
          label[t] = multiply_mod(label[t], label_of(labels[i], which, values[node][kept[t]]));
        continue;
      }
      table.clear();
      for (std::int64_t value = least; value <= nodes[node].most[row]; ++value)
        table.push_back(label_of(labels[i], which, value));
      for (std::size_t t = 0; t < kept.size(); ++t) {
        const auto value = static_cast<std::size_t>(values[node][kept[t]] - least);
        label[t] = multiply_mod(label[t], table[value]);
      }
    }
  }
  std::vector<std::int64_t> element;
  std::map<std::pair<bool, std::pair<std::uint32_t, std::uint32_t>>, Numbers> families;
  for (std::uint32_t r = 0; r < roles_.size(); ++r) {
    const Role& role = roles_[r];
    const auto holds = [&](std::uint64_t support) { return factor.holds(support); };
    if (std::none_of(role.supports.begin(), role.supports.end(), holds)) continue;
    element.assign(kept.size(), 0);
    for (std::size_t i = 0; i < role.nodes.size(); ++i) {
      if (!holds(role.supports[i])) continue;
      const TermNode node = role.nodes[i];
      const std::int64_t least = std::min<std::int64_t>(nodes[node].least[row], 0);
      const std::int64_t extent =
          std::max(checked_add(checked_subtract(nodes[node].most[row], least), 1), std::int64_t{1});
      for (std::size_t t = 0; t < kept.size(); ++t)
        element[t] = checked_add(checked_multiply(element[t], extent), values[node][kept[t]] - least);
    }
    // Reads of one tensor number their elements together.
    const auto& read = space_.reads_[role.read];
    Numbers& numbers = families[{role.read == 0, {read.weight ? 0xffffffff : role.dimension, read.tensor}}];
    terms.roles[r].element.reserve(kept.size());
    for (const std::int64_t value : element) terms.roles[r].element.push_back(numbers(value));
    terms.roles[r].count = 0;
  }
  for (std::uint32_t r = 0; r < roles_.size(); ++r) {
    if (terms.roles[r].absent()) continue;
    const auto& read = space_.reads_[roles_[r].read];
    terms.roles[r].count =
        families[{roles_[r].read == 0, {read.weight ? 0xffffffff : roles_[r].dimension, read.tensor}}]
            .count();
  }
}

void TermFactors::count(const Factor& factor, std::span<const std::uint64_t> labels,
                        std::vector<std::uint64_t>& out) {
  TermTable terms;
  for (std::size_t row = 0; row < space_.rows_; ++row) {
    list(factor, row, labels, terms);
    patterns_->table.count(terms, out);
  }
}

Hash128 TermFactors::key() {
  find_roles();
  choose_namings();
  choose_patterns();
  find_factors();
  const auto& patterns = patterns_->table.patterns();
  std::array<std::uint64_t, kTermRows> scale = space_.scale_;
  std::vector<std::uint64_t> head{space_.rows_, space_.reads_.size(), roles_.size()};
  for (const TermSpace::Dimension& dimension : space_.dimensions_) {
    if (dimension.read != 0) break;
    for (std::size_t row = 0; row < space_.rows_; ++row)
      head.push_back(static_cast<std::uint64_t>(space_.nodes_[dimension.index].most[row]));
  }
  std::map<std::vector<std::uint64_t>, std::vector<std::uint64_t>> counted;  // by the names of labels
  std::set<std::vector<std::uint64_t>> labelings;
  for (const Naming& naming : namings_) labelings.insert(label_names(naming));
  const double most_points =
      std::min(static_cast<double>(kMostPoints), kMostListed / static_cast<double>(labelings.size()));
  std::optional<Hash128> least;
  bool first = true;
  for (const Naming& naming : namings_) {
    const std::vector<std::uint64_t> labels = label_names(naming);
    auto [place, is_new] = counted.try_emplace(labels);
    std::vector<std::uint64_t>& all = place->second;
    if (is_new) {
      all.assign(patterns.size() * space_.rows_, 1);
      std::vector<Hash128> written;
      for (Factor& factor : factors_) {
        const Hash128 id = describe(factor, labels);
        if (factor.order.empty() &&
            factor.iterators != 0) {  // sums that nothing depends on count as often as they run
          for (std::size_t row = 0; row < space_.rows_ && first; ++row) {
            for (std::size_t i = 0; i < space_.iterators_.size(); ++i) {
              if (!(factor.iterators >> i & 1)) continue;
              scale[row] =
                  multiply_mod(scale[row], from_integer(space_.nodes_[space_.iterators_[i]].parameter[row]));
            }
          }
          continue;
        }
        if (points_of(factor) > most_points) {  // too large to list: compared as it is written
          written.push_back(id);
          continue;
        }
        auto known = cache_.counts.find(id);
        if (known == cache_.counts.end()) {
          std::vector<std::uint64_t> counts;  // remembered once they are whole
          count(factor, labels, counts);
          if (cache_.counts.size() >= kMostCached) cache_.counts.clear();
          known = cache_.counts.emplace(id, std::move(counts)).first;
        }
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = multiply_mod(all[i], known->second[i]);
      }
      std::sort(written.begin(), written.end());
      for (std::size_t row = 0; row < space_.rows_; ++row) {
        if (scale[row] == 1) continue;
        for (std::size_t i = 0; i < patterns.size(); ++i) {
          std::uint64_t& value = all[row * patterns.size() + i];
          value = multiply_mod(value, power_mod(scale[row], patterns[i].terms));
        }
      }
      for (const Hash128& hash : written) {
        all.push_back(hash.high);
        all.push_back(hash.low);
      }
      first = false;
    }
    const auto order = order_of(naming);
    auto renaming = patterns_->renamings.find(order);
    if (renaming == patterns_->renamings.end())
      renaming = patterns_->renamings.emplace(order, patterns_->table.renamed(order)).first;
    std::vector<std::uint64_t> named = head;
    named.resize(head.size() + all.size());
    std::uint64_t* const out = named.data() + head.size();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool counts = i < patterns.size() * space_.rows_;
      const std::size_t at =
          counts ? i / patterns.size() * patterns.size() + renaming->second[i % patterns.size()] : i;
      out[at] = all[i];
    }
    const Hash128 hash = hash_bytes(named.data(), named.size() * sizeof(named[0]));
    if (!least || hash < *least) least = hash;
  }
  return *least;
}

}  // namespace syno::equality
