// support/interrupt.hpp — long loops ask now and then whether the user wants them to stop.
#pragma once

namespace syno {

/// What a long loop calls: a few instructions; every twentieth of a second, in the process's main thread, the
/// handler. The handler throws to stop the loop.
void interruption_point();

/// The same at once, for loops that wait.
void check_interruption();

/// The embedding language's check for signals; none by default. It is called without any lock held.
void set_interruption_handler(void (*handler)());

}  // namespace syno
