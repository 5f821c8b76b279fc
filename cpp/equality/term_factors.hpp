// equality/term_factors.hpp — the key of a TermSpace: its factors, counted and joined.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "equality/keys.hpp"
#include "equality/term_counts.hpp"
#include "equality/term_space.hpp"

namespace syno::equality {

/// Patterns for one set of roles, with the renamings met so far.
struct KnownPatterns {
  PatternTable table;
  std::map<std::vector<std::uint32_t>, std::vector<std::uint32_t>> renamings;
};

struct OperatorKeyCache::State {
  std::unordered_map<Hash128, std::vector<std::uint64_t>, HashKey> counts;  ///< by what a factor looks like
  std::map<std::vector<std::uint64_t>, KnownPatterns> patterns;             ///< by their RoleKinds
  std::vector<std::pair<Hash128, symbolic::Sizes>> sizes;                   ///< small ones, by hash
};

/// One key under construction.
class TermFactors {
 public:
  TermFactors(const TermSpace& space, OperatorKeyCache::State& cache) : space_(space), cache_(cache) {}
  Hash128 key();

 private:
  /// A coordinate or a weight of which only equality counts: the nodes that say which element it is.
  struct Role {
    std::uint32_t read = 0, dimension = 0;
    bool weight = false;
    std::vector<TermNode> nodes;
    std::vector<std::uint64_t> supports;  ///< by node; of all reads of the tensor
  };
  struct Place {
    std::uint32_t read = 0, dimension = 0;
    TermNode node = 0;
  };
  /// By read: which of the exchangeable tensors it is called, and which of the reads of one tensor.
  struct Name {
    std::uint32_t tensor = 0, read = 0;
  };
  using Naming = std::vector<Name>;

  void find_roles();
  void unwrap(TermNode node, Role& role) const;
  void choose_namings();
  std::vector<std::uint32_t> order_of(const Naming& naming) const;
  void choose_patterns();
  void unite(std::uint64_t support);
  void find_factors();

  /// Without iterators: the coordinates that stand still.
  struct Factor {
    std::uint64_t iterators = 0;
    bool holds(std::uint64_t support) const {
      return iterators == 0 ? support == 0 : (support & iterators) != 0;
    }
    std::vector<std::uint32_t> order;  ///< iterators as the coordinates name them
  };
  Hash128 describe(Factor& factor, std::span<const std::uint64_t> labels);
  void describe_node(TermNode node, Factor& factor);
  std::vector<std::uint64_t> label_names(const Naming& naming) const;
  void count(const Factor& factor, std::span<const std::uint64_t> labels, std::vector<std::uint64_t>& out);
  double points_of(const Factor& factor) const;
  std::vector<TermNode> last_uses() const;
  void list(const Factor& factor, std::size_t row, std::span<const std::uint64_t> labels, TermTable& terms);

  const TermSpace& space_;
  OperatorKeyCache::State& cache_;
  std::vector<Role> roles_;  ///< by position under the first naming
  std::vector<Place> places_;
  std::vector<Naming> namings_;
  std::vector<std::uint64_t> kinds_id_;
  KnownPatterns* patterns_ = nullptr;
  std::vector<Factor> factors_;
  std::vector<std::uint64_t> text_;   ///< of a factor
  std::vector<std::uint32_t> local_;  ///< by node: its number in the text, from 1
};

}  // namespace syno::equality
