// Which CPU code is generated for.
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/X86TargetParser.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "jit/kernel.hpp"
#include "support/error.hpp"

namespace syno::jit {

namespace {

/// `+a,-b`, sorted: a name alone would imply features that a virtual machine may have masked.
std::string feature_text(const std::map<std::string, bool>& features) {
  std::string text;
  for (const auto& [name, on] : features)
    text += (text.empty() ? "" : ",") + std::string(on ? "+" : "-") + name;
  return text;
}

machine::Target target_of(const std::map<std::string, bool>& features, bool x86) {
  const auto has = [&](const std::string& name) {
    const auto found = features.find(name);
    return found != features.end() && found->second;
  };
  machine::Target target;
  // A CPU's list leaves out what its entries imply: avx512f, avx.
  const bool wide = has("avx512vl") && has("avx512dq") && has("avx512bw");
  target.vector_bits = wide ? 512 : has("avx") || has("avx2") ? 256 : 128;
  target.vector_registers = target.vector_bits == 512 || !x86 ? 32 : 16;
  const auto cache = [](int name, std::int64_t otherwise) {
    const long size = ::sysconf(name);
    return size > 0 ? static_cast<std::int64_t>(size) : otherwise;
  };
  target.l1_bytes = cache(_SC_LEVEL1_DCACHE_SIZE, target.l1_bytes);
  target.l2_bytes = cache(_SC_LEVEL2_CACHE_SIZE, target.l2_bytes);
  target.l3_bytes = cache(_SC_LEVEL3_CACHE_SIZE, target.l3_bytes);
  target.threads = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  return target;
}

std::map<std::string, bool> host_features() {
  std::map<std::string, bool> features;
  for (const auto& entry : llvm::sys::getHostCPUFeatures()) features[entry.getKey().str()] = entry.getValue();
  return features;
}

Cpu detected() {
  Cpu cpu;
  cpu.triple = llvm::sys::getProcessTriple();
  cpu.name = llvm::sys::getHostCPUName().str();
  const auto features = host_features();
  cpu.features = feature_text(features);
  cpu.target = target_of(features, cpu.triple.starts_with("x86_64"));
  return cpu;
}

}  // namespace

Cpu cpu_named(const std::string& name) {
  if (name == "host") return detected();
  Cpu cpu = detected();
  if (!cpu.triple.starts_with("x86_64")) {
    if (name == "generic") {
      cpu.name = "generic";
      cpu.features.clear();
      cpu.target = target_of({}, false);
      return cpu;
    }
    fail<UnknownName>("cpu", "{}", unknown_name("CPU", name, {"host", "generic"}));
  }
  const std::string wanted = name == "generic" ? "x86-64" : name;
  llvm::SmallVector<llvm::StringRef> valid;
  llvm::X86::fillValidCPUArchList(valid, true);
  if (std::find(valid.begin(), valid.end(), wanted) == valid.end()) {
    std::vector<std::string> names{"host", "generic"};
    for (const llvm::StringRef arch : valid) names.push_back(arch.str());
    fail<UnknownName>("cpu", "{}", unknown_name("CPU", name, names));
  }
  llvm::SmallVector<llvm::StringRef> implied;
  llvm::X86::getFeaturesForCPU(wanted, implied);
  std::map<std::string, bool> features;
  for (const llvm::StringRef feature : implied) features[feature.str()] = true;
  cpu.name = wanted;
  cpu.features.clear();  // the name implies them
  cpu.target = target_of(features, true);
  return cpu;
}

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
