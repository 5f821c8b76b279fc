// support/fork_gate.hpp — fork among threads: a child inherits no lock that is held, and nothing half made.
#pragma once

#include <functional>

namespace syno {

/// Around whatever takes a lock of the engine, or of a library below it: fork waits until no thread is in a
/// section, and threads wait with entering one while a fork waits. Sections nest. A section is entered before
/// a lock is taken, never while one is held that another section may wait for.
class ForkSection {
 public:
  /// `Urgent` enters also while a fork waits: for what another thread's section may be waiting for.
  enum class Kind { Usual, Urgent };
  explicit ForkSection(Kind kind = Kind::Usual);
  ~ForkSection();
  ForkSection(const ForkSection&) = delete;
  ForkSection& operator=(const ForkSection&) = delete;
};

/// Leaves this thread's sections while it lives: where it holds no lock and has left nothing half made that a
/// child could meet, it may then take locks of others.
class OutsideForkSections {
 public:
  OutsideForkSections();
  ~OutsideForkSections();
  OutsideForkSections(const OutsideForkSections&) = delete;
  OutsideForkSections& operator=(const OutsideForkSections&) = delete;

 private:
  int depth_;
};

/// Calls `act` now, or when this thread has left its outermost section: for what takes locks of others, such
/// as the interpreter's, which the thread that forks may hold. What it throws is dropped.
void outside_fork_sections(std::function<void()> act);

/// What a part of the engine does at every fork, in the order in which parts were added; for namespace scope.
struct ForkHooks {
  void (*before)() = nullptr;    ///< before any section is waited for: makes what is made once
  void (*in_child)() = nullptr;  ///< by the child's only thread, with no section entered by another
};
bool add_fork_hooks(ForkHooks hooks);

}  // namespace syno
