#include "support/build_id.hpp"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace syno {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

/// The GNU build identifier among the notes of a segment; empty without one.
std::string find_note(const unsigned char* at, std::size_t size) {
  const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, at, sizeof header);
    const std::size_t name = sizeof header, value = name + padded(header.n_namesz),
                      end = value + padded(header.n_descsz);
    if (end > size) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(at + name, "GNU", 4) == 0)
      return hexadecimal(at + value, header.n_descsz);
    at += end;
    size -= end;
  }
  return {};
}

struct Search {
  std::uintptr_t address;
  std::string found;
};

/// Called for each loaded object; nonzero ends the search at the one that holds the address.
int visit(dl_phdr_info* object, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const auto start = [&](const ElfW(Phdr) & segment) {
    return static_cast<std::uintptr_t>(object->dlpi_addr + segment.p_vaddr);
  };
  bool holds = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    holds = holds || (segment.p_type == PT_LOAD && search.address >= start(segment) &&
                      search.address - start(segment) < segment.p_memsz);
  }
  if (!holds) return 0;
  for (int i = 0; i < object->dlpi_phnum && search.found.empty(); ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type == PT_NOTE)
      search.found = find_note(reinterpret_cast<const unsigned char*>(start(segment)), segment.p_memsz);
  }
  return 1;
}

}  // namespace

const std::string& build_id() {
  static const std::string id = [] {
    Search search{reinterpret_cast<std::uintptr_t>(&visit), {}};
    dl_iterate_phdr(visit, &search);
    return search.found;
  }();
  return id;
}

}  // namespace syno
