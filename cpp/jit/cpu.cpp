// Which CPU code is generated for.
#include <llvm/TargetParser/AArch64TargetParser.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/TargetParser/X86TargetParser.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "jit/codegen.hpp"
#include "jit/kernel.hpp"
#include "jit/target_info.hpp"
#include "support/error.hpp"

namespace syno::jit {

namespace {

using Features = std::map<std::string, bool>;

/// `+a,-b`, sorted: a name alone would imply features that a virtual machine may have masked.
std::string feature_text(const Features& features) {
  std::string text;
  for (const auto& [name, on] : features)
    text += (text.empty() ? "" : ",") + std::string(on ? "+" : "-") + name;
  return text;
}

std::vector<std::string> enabled_of(const Features& features) {
  std::vector<std::string> names;
  for (const auto& [name, on] : features)
    if (on) names.push_back(name);
  return names;
}

/// What schedules may assume where no machine file says more: of this machine, the caches it has.
void schedule_target(Cpu& cpu) {
  machine::Target& target = cpu.target;
  target.vector_bits = cpu.info.vector_bits;
  target.vector_registers = cpu.info.vector_registers;
  if (const double ports = fma_ports(cpu); ports > 0) target.fma_per_cycle = ports;
  if (!cpu.here) return;
  const auto cache = [](int name, std::int64_t otherwise) {
    const long size = ::sysconf(name);
    return size > 0 ? static_cast<std::int64_t>(size) : otherwise;
  };
  target.l1_bytes = cache(_SC_LEVEL1_DCACHE_SIZE, target.l1_bytes);
  target.l2_bytes = cache(_SC_LEVEL2_CACHE_SIZE, target.l2_bytes);
  target.l3_bytes = cache(_SC_LEVEL3_CACHE_SIZE, target.l3_bytes);
  target.threads = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

/// By whole words: LLVM reads the beginnings of them only, and takes `gnuu` for `gnu`.
std::optional<Architecture> architecture_of(const llvm::Triple& triple) {
  if (triple.getOSName() != "linux") return std::nullopt;
  if (triple.getEnvironmentName() != "gnu" && triple.getEnvironmentName() != "musl") return std::nullopt;
  if (triple.getArchName() == "x86_64") return Architecture::X86_64;
  if (triple.getArchName() == "aarch64") return Architecture::AArch64;
  return std::nullopt;
}

Architecture host_architecture() {
  const auto found = architecture_of(llvm::Triple(llvm::sys::getProcessTriple()));
  SYNO_ASSERT(found, "syno is built for Linux on x86-64 or AArch64");
  return *found;
}

/// Bits of SVE registers by CPU, where they have more than the least, 128: Arm's technical reference manuals
/// of the Neoverse V1, and Fujitsu's of the A64FX.
int scalable_bits(const std::string& name) {
  if (name == "neoverse-v1" || name == "neoverse-512tvb") return 256;
  if (name == "a64fx") return 512;
  return 128;
}

Cpu detected() {
  Cpu cpu;
  cpu.triple = llvm::sys::getProcessTriple();
  cpu.name = llvm::sys::getHostCPUName().str();
  Features features;
  for (const auto& entry : llvm::sys::getHostCPUFeatures()) features[entry.getKey().str()] = entry.getValue();
  cpu.features = feature_text(features);
  cpu.enabled = enabled_of(features);
  cpu.info = target_info(host_architecture(), features, scalable_bits(cpu.name));
  schedule_target(cpu);
  return cpu;
}

Features implied(llvm::ArrayRef<llvm::StringRef> names) {
  Features features;
  for (llvm::StringRef name : names) {
    name.consume_front("+");
    features[name.str()] = true;
  }
  return features;
}

constexpr std::array kScalableBits{128, 256, 512};

/// `generic+sve256`: any CPU that has SVE, with registers of so many bits.
std::optional<int> generic_with_scalable(const std::string& name) {
  for (const int bits : kScalableBits)
    if (name == fmt::format("generic+sve{}", bits)) return bits;
  return std::nullopt;
}

std::vector<std::string> valid_cpus(Architecture architecture, bool here) {
  std::vector<std::string> names;
  if (here) names.emplace_back("host");
  names.emplace_back("generic");
  llvm::SmallVector<llvm::StringRef> valid;
  if (architecture == Architecture::X86_64) {
    llvm::X86::fillValidCPUArchList(valid, true);
  } else {
    for (const int bits : kScalableBits) names.push_back(fmt::format("generic+sve{}", bits));
    llvm::AArch64::fillValidCPUArchList(valid);
  }
  for (const llvm::StringRef name : valid) names.push_back(name.str());
  return names;
}

/// Lists all of them: there are more than the usual sentence has room for.
std::string unknown_cpu(const std::string& name, std::vector<std::string> valid) {
  const std::string usual = unknown_name("CPU", name, valid);
  std::sort(valid.begin(), valid.end());
  return usual.substr(0, usual.find(" Valid: ")) + fmt::format(" Valid: {}", fmt::join(valid, ", "));
}

/// Of a name that is valid; its features are implied by the name for LLVM, too.
TargetInfo named_info(Cpu& cpu, Architecture architecture) {
  if (architecture == Architecture::X86_64) {
    if (cpu.name == "generic") cpu.name = "x86-64";
    llvm::SmallVector<llvm::StringRef> names;
    llvm::X86::getFeaturesForCPU(cpu.name, names);
    const Features features = implied(names);
    cpu.enabled = enabled_of(features);
    return target_info(architecture, features, 0);
  }
  if (const auto bits = generic_with_scalable(cpu.name)) {
    cpu.name = "generic";
    cpu.features = "+sve";
    cpu.enabled = {"sve"};
    return target_info(architecture, {{"sve", true}}, *bits);
  }
  const auto known = llvm::AArch64::parseCpu(cpu.name);
  if (!known) return target_info(architecture, {}, 0);
  std::vector<llvm::StringRef> names;
  llvm::AArch64::getExtensionFeatures(known->getImpliedExtensions(), names);
  const Features features = implied(names);
  cpu.enabled = enabled_of(features);
  return target_info(architecture, features, scalable_bits(cpu.name));
}

}  // namespace

Cpu cpu_named(const std::string& name, const std::string& triple) {
  const llvm::Triple parsed(llvm::Triple::normalize(triple));
  const auto architecture = architecture_of(parsed);
  if (!architecture) {
    std::vector<std::string> valid;
    for (const MachineNames& row : all_machine_names()) valid.emplace_back(row.triple);
    fail<UnknownName>("target", "{}", unknown_name("target", triple, valid));
  }
  const bool here = *architecture == host_architecture();
  if (here && name == "host") return detected();
  const std::vector<std::string> valid = valid_cpus(*architecture, here);
  if (std::find(valid.begin(), valid.end(), name) == valid.end())
    fail<UnknownName>("cpu", "{}", unknown_cpu(name, valid));
  Cpu cpu;
  cpu.triple = parsed.str();
  cpu.name = name;
  cpu.info = named_info(cpu, *architecture);
  cpu.here = here;
  schedule_target(cpu);
  return cpu;
}

Cpu cpu_named(const std::string& name) { return cpu_named(name, llvm::sys::getProcessTriple()); }

const Cpu& host_cpu() {
  // The variable may change while the process runs; what was handed out stays where it is.
  static std::map<std::string, Cpu> known;
  static std::mutex guard;
  const char* named = std::getenv("SYNO_CPU");
  const std::string name = named != nullptr ? named : "";
  const std::lock_guard lock(guard);
  auto found = known.find(name);
  if (found == known.end()) found = known.emplace(name, name.empty() ? detected() : cpu_named(name)).first;
  return found->second;
}

}  // namespace syno::jit
