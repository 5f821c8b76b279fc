// schedule/attempt.hpp — trying decisions on a plan and taking them back: a journal of what they changed,
// which is shorter than a copy of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "symbolic/expr.hpp"

namespace syno::schedule {

class Plan;

/// How to take back, in reverse order, what changed while an attempt was open; nothing is kept otherwise. A
/// copy of a plan begins with nothing to take back, and a plan that is assigned to keeps its own.
class Journal {
 public:
  using Undo = std::function<void(Plan&)>;

  Journal() = default;
  Journal(const Journal&) {}
  Journal& operator=(const Journal&) { return *this; }
  ~Journal() = default;

  bool open() const { return open_ > 0; }
  void add(Undo undo) {
    if (open()) undos_.push_back(std::move(undo));
  }
  /// Whether a scope's plan is to be kept: not where that was done since an attempt began or scopes moved.
  bool first_change(std::size_t scope);
  void moved() { changed_.clear(); }  ///< scopes have other numbers

 private:
  friend class Attempt;
  std::vector<Undo> undos_;
  std::vector<std::size_t> changed_;
  int open_ = 0;
};

/// What is changed in a plan while it is open is undone when it ends, unless it is kept. Attempts nest; the
/// plan is not assigned to meanwhile.
class Attempt {
 public:
  explicit Attempt(Plan& plan);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt();

  void undo();  ///< back to how it began; it stays open
  void keep();  ///< ends it; an attempt around it can still undo it

 private:
  void close();
  Plan& plan_;
  bool open_ = true;
  // What only grows, and how far it had; and numbers.
  std::size_t undos_, tensors_, scalars_, most_scalars_;
  symbolic::Arena::Extent arena_;
  std::uint32_t next_slot_;
};

}  // namespace syno::schedule
