#include "jit/native_library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "support/error.hpp"
#include "support/fork_gate.hpp"
#include "support/json.hpp"
#include "support/memory.hpp"

namespace syno::jit {

namespace {

constexpr std::string_view kWhere = "bundle";
constexpr std::size_t kMostKernels = 1 << 20, kMostArguments = 1 << 16;

#if defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_X86_64;
#endif

/// The system's loader reads what follows the header as it is.
void require_shared_object(std::string_view elf) {
  Elf64_Ehdr header{};
  if (elf.size() < sizeof header || std::memcmp(elf.data(), ELFMAG, SELFMAG) != 0)
    fail<FormatError>(kWhere, "its machine code is no ELF file");
  std::memcpy(&header, elf.data(), sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
    fail<FormatError>(kWhere, "its machine code is no shared object of 64 bits");
  if (header.e_machine != kMachine)
    fail<FormatError>(kWhere, "its machine code is for ELF machine {}; this one is {}", header.e_machine,
                      kMachine);
}

/// A file that has no name and whose content stays.
int file_of(std::string_view bytes) {
  const int file = ::memfd_create("syno", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) fail<KernelError>(kWhere, "no file can be made in memory: {}", std::strerror(errno));
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      const int error = errno;
      ::close(file);
      fail<KernelError>(kWhere, "there is no memory for its machine code: {}", std::strerror(error));
    }
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  return file;
}

std::int64_t count_of(const nlohmann::json& value, const char* what) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > (std::uint64_t{1} << 62))
    fail<FormatError>(kWhere, "{} is a number from 0 on, not {}", what, described(value));
  return value.get<std::int64_t>();
}

const nlohmann::json& part(const nlohmann::json& object, const char* name) {
  if (!object.is_object() || !object.contains(name))
    fail<FormatError>(kWhere, "the interface of its machine code says no {}", name);
  return object.at(name);
}

void read_parameters(const std::string& symbol, const nlohmann::json& rows, NativeKernel& kernel) {
  if (!rows.is_array() || rows.size() > kMostArguments)
    fail<FormatError>(kWhere, "the parameters of {} are a list, not {}", symbol, described(rows));
  for (const nlohmann::json& row : rows) {
    if (!row.is_array() || row.size() != 2)
      fail<FormatError>(kWhere, "a parameter of {} is its least and greatest value, not {}", symbol,
                        described(row));
    kernel.parameters.emplace_back(count_of(row[0], "a parameter"), count_of(row[1], "a parameter"));
  }
}

}  // namespace

NativeLibrary::NativeLibrary(std::string_view elf) {
  require_shared_object(elf);
  const ForkSection section;
  file_ = file_of(elf);
  // The file stays open: its number is the name by which the loader knows what it has loaded.
  handle_ = ::dlopen(fmt::format("/proc/self/fd/{}", file_).c_str(), RTLD_NOW | RTLD_LOCAL);
  try {
    if (handle_ == nullptr) {
      const char* said = ::dlerror();
      fail<KernelError>(kWhere, "its machine code cannot be loaded: {}",
                        said != nullptr ? said : "no reason");
    }
    const auto* text = static_cast<const char*>(::dlsym(handle_, "syno_interface"));
    if (text == nullptr) fail<FormatError>(kWhere, "its machine code has no `syno_interface`");
    read_interface(text);
  } catch (...) {
    if (handle_ != nullptr) ::dlclose(handle_);
    ::close(file_);
    throw;
  }
}

NativeLibrary::~NativeLibrary() {
  const ForkSection section;
  ::dlclose(handle_);
  ::close(file_);
}

void NativeLibrary::read_interface(std::string_view text) {
  const nlohmann::json interface = parse_json(kWhere, text);
  if (part(interface, "version") != 1 && part(interface, "version") != 2)
    fail<FormatError>(kWhere, "the interface of its machine code has version {}; this one reads 1 and 2",
                      described(interface.at("version")));
  const nlohmann::json& listed = part(interface, "kernels");
  if (!listed.is_object() || listed.size() > kMostKernels)
    fail<FormatError>(kWhere, "the interface of its machine code lists no kernels");
  for (const auto& [symbol, row] : listed.items()) {
    NativeKernel kernel;
    kernel.shared_bytes = count_of(part(row, "shared"), "shared");
    kernel.private_bytes = count_of(part(row, "private"), "private");
    const nlohmann::json& arguments = part(row, "arguments");
    if (!arguments.is_array() || arguments.size() > kMostArguments)
      fail<FormatError>(kWhere, "the arguments of {} are a list, not {}", symbol, described(arguments));
    for (const nlohmann::json& bytes : arguments)
      kernel.argument_bytes.push_back(count_of(bytes, "an argument"));
    if (row.contains("parameters")) read_parameters(symbol, row.at("parameters"), kernel);
    kernel.function = reinterpret_cast<KernelFunction*>(::dlsym(handle_, symbol.c_str()));
    if (kernel.function == nullptr) fail<FormatError>(kWhere, "its machine code has no `{}`", symbol);
    require_memory(kWhere, fmt::format("intermediate results of {}", symbol), kernel.shared_bytes, 1);
    require_memory(kWhere, fmt::format("intermediate results of {}", symbol), kernel.private_bytes, 1);
    kernels_.emplace(symbol, std::move(kernel));
  }
}

const NativeKernel& NativeLibrary::kernel(const std::string& symbol) const {
  const auto found = kernels_.find(symbol);
  if (found == kernels_.end()) {
    std::vector<std::string> valid;
    for (const auto& [name, kernel] : kernels_) valid.push_back(name);
    throw UnknownName(kWhere, unknown_name("kernel", symbol, valid));
  }
  return found->second;
}

}  // namespace syno::jit
