// construct/written.hpp — what was found out about scopes, by what it depends on. Judging a choice for one
// scope takes the construction to its end; most of the scopes after it are written there as they were for the
// choice before.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "schedule/decisions.hpp"
#include "support/hash.hpp"

namespace syno::construct {

struct Construction;

/// The work of a scope where it is computed.
struct Work {
  double cycles = 0;  ///< by the best sketch; 0 without sketches
  double results = 1;
  std::int64_t run = 1;  ///< elements of its first read that lie together
};

/// Of one prepared construction and its copies, whose threads may share it.
class WrittenScopes {
 public:
  using Decisions = std::vector<schedule::Decision>;
  /// Those that wrote a scope as a count of cycles says: no policy was asked.
  std::shared_ptr<const Decisions> decisions(Hash128 situation) const;
  std::optional<Work> work(Hash128 piece) const;
  void put(Hash128 situation, Decisions decisions);
  void put(Hash128 piece, const Work& work);
  /// How often decisions were found.
  std::size_t reused() const;

 private:
  mutable std::mutex mutex_;
  std::map<Hash128, std::shared_ptr<const Decisions>> decisions_;
  std::map<Hash128, Work> works_;
  mutable std::size_t reused_ = 0;
};

/// All that the decisions for a scope depend on, whose consumers are decided: itself, the loops of who reads
/// it and of those that these are computed in, the names that copies may not have. Nothing where a consumer's
/// loops are not known yet.
std::optional<Hash128> situation_of(const Construction& c, const std::string& scope, bool in_pieces);

/// All that the work of a scope depends on, about whose loops nothing was decided: what of it is computed at
/// a time, wherever that is.
Hash128 piece_of(const schedule::Plan& plan, std::size_t scope);

}  // namespace syno::construct
