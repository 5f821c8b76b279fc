// support/build_id.hpp — which build of syno this is, for caches of what its code makes.
#pragma once

#include <string>

namespace syno {

/// The identifier that the linker gave the library or program holding this function, in hexadecimal: a hash
/// of its contents. Empty where the linker gave none.
const std::string& build_id();

}  // namespace syno
