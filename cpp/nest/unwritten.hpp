// nest/unwritten.hpp — places of temporaries that are computed with though nobody wrote them.
#pragma once

#include "nest/loop_nest.hpp"

namespace syno::nest {

/// The nest in which every place of a temporary that is read holds a number: room behind the last element of
/// a padded copy is computed with by whole vectors, and what comes of it is never seen. Where nobody writes
/// it, it is 0 from the allocation on, not what other code left there: denormal numbers take Intel's CPUs
/// over a hundred cycles each. Of a nest with parameters: what no value of them makes it write.
///
///     temporary a_pack: f32[25, 112]          allocate a_pack
///     allocate a_pack                           for i in 0..25
///       ... a_pack[k, m] = ..., m < 100           for l in 100..112 vector
///       ... a_pack[k, m] * ..., m < 112             a_pack[i, l] = 0
///                                               ...
LoopNest with_unwritten_zero(LoopNest nest);

}  // namespace syno::nest
