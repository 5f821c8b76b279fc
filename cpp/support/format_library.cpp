// The code behind <fmt/format.h>, compiled once. With FMT_HEADER_ONLY every file that formats a sentence
// would compile it again, which doubles the time a build takes; as a library Debian has it only shared, which
// a wheel cannot ask for.
#include <fmt/format-inl.h>

// The templates that <fmt/format.h> declares `extern`, for the one character type that is used.
template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(
    fmt::detail::locale_ref);
template char fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref);
