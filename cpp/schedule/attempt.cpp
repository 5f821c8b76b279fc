#include "schedule/attempt.hpp"

#include <algorithm>
#include <utility>

#include "schedule/plan.hpp"

namespace syno::schedule {

bool Journal::first_change(std::size_t scope) {
  if (!open() || std::find(changed_.begin(), changed_.end(), scope) != changed_.end()) return false;
  changed_.push_back(scope);
  return true;
}

Attempt::Attempt(Plan& plan)
    : plan_(plan),
      undos_(plan.journal_.undos_.size()),
      tensors_(plan.program.tensors.size()),
      scalars_(plan.program.scalars.size()),
      most_scalars_(plan.most_scalars_),
      arena_(plan.program.arena.extent()),
      next_slot_(plan.program.next_slot) {
  ++plan_.journal_.open_;
  plan_.journal_.moved();
}

Attempt::~Attempt() {
  if (!open_) return;
  undo();
  close();
}

void Attempt::undo() {
  auto& undos = plan_.journal_.undos_;
  const int open = std::exchange(plan_.journal_.open_, 0);  // what is taken back is no change
  while (undos.size() > undos_) {
    undos.back()(plan_);
    undos.pop_back();
  }
  plan_.journal_.open_ = open;
  program::Program& program = plan_.program;
  program.tensors.erase(program.tensors.begin() + static_cast<std::ptrdiff_t>(tensors_),
                        program.tensors.end());
  program.scalars.erase(program.scalars.begin() + static_cast<std::ptrdiff_t>(scalars_),
                        program.scalars.end());
  plan_.tensors.resize(tensors_);
  program.arena.shrink(arena_);
  program.next_slot = next_slot_;
  plan_.most_scalars_ = most_scalars_;
  plan_.journal_.moved();
}

void Attempt::keep() { close(); }

void Attempt::close() {
  open_ = false;
  if (--plan_.journal_.open_ == 0) plan_.journal_.undos_.clear();
}

}  // namespace syno::schedule
