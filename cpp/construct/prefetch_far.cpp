// What is asked for ahead: tensors beyond the second cache, read or written.
#include <algorithm>

#include "construct/construct.hpp"

namespace syno::construct {

Refused prefetch_far(Construction& c, const std::string& scope) {
  const std::size_t s = c.index(scope);
  std::vector<program::TensorId> touched, seen;
  for (const program::ScalarId read : c.plan.all_reads(s))
    touched.push_back(c.plan.program.scalar(read).tensor);
  touched.push_back(c.plan.program.scopes[s].output);
  for (const program::TensorId tensor : touched) {
    if (std::find(seen.begin(), seen.end(), tensor) != seen.end()) continue;
    seen.push_back(tensor);
    const auto made_by = c.plan.producer(tensor);
    if (made_by && c.plan.scopes[*made_by].attach_scope >= 0) continue;  // made just before it is read
    auto bytes = static_cast<std::int64_t>(byte_size(c.schedule.dtype));
    for (const std::int64_t extent : c.plan.storage(tensor)) bytes *= extent;
    if (2 * bytes <= c.target.l2_bytes) continue;
    // A quarter of the first cache is longer on its way from memory than to be read.
    SYNO_ACCEPT(c.add({"prefetch",
                       scope,
                       {},
                       {c.target.l2_bytes / 2, c.target.l1_bytes / 4},
                       c.plan.program.tensor(tensor).name,
                       {}}));
  }
  return {};
}

}  // namespace syno::construct
