#include "jit/machine_code.hpp"

#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstrAnalysis.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "jit/target_info.hpp"
#include "support/error.hpp"

namespace syno::jit {

namespace {

constexpr double kTrips = 32;  ///< that a loop is taken to make

/// Of one instruction, in the order of the code.
struct Seen {
  std::uint64_t at = 0;
  LoopCode adds;                          ///< what it is one of
  std::optional<std::uint64_t> jumps_to;  ///< in this section
  bool goes_on = true;                    ///< to the next one
};

bool starts_with_any(std::string_view name, const std::vector<std::string_view>& prefixes, bool number) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
    if (!name.starts_with(prefix)) return false;
    const std::size_t next = prefix.size();
    return !number || (next < name.size() && std::isdigit(static_cast<unsigned char>(name[next])) != 0);
  });
}

class Reader {
 public:
  explicit Reader(const llvm::TargetMachine& machine)
      // What the machine knows of its CPU takes milliseconds to work out again.
      : registers_(*machine.getMCRegisterInfo()),
        instructions_(*machine.getMCInstrInfo()),
        context_(machine.getTargetTriple(), machine.getMCAsmInfo(), &registers_,
                 machine.getMCSubtargetInfo()),
        disassembler_(machine.getTarget().createMCDisassembler(*machine.getMCSubtargetInfo(), context_)),
        analysis_(machine.getTarget().createMCInstrAnalysis(&instructions_)),
        names_(machine_names(machine.getTargetTriple().isAArch64() ? Architecture::AArch64
                                                                   : Architecture::X86_64)),
        vector_(registers_.getNumRegs()),
        stack_(registers_.getNumRegs()) {
    SYNO_ASSERT(disassembler_ && analysis_, "every architecture that syno compiles for has a disassembler");
    for (unsigned r = 1; r < registers_.getNumRegs(); ++r) {
      const std::string_view name = registers_.getName(r);
      const bool kept = std::find(names_.kept_registers.begin(), names_.kept_registers.end(), name) !=
                        names_.kept_registers.end();
      vector_[r] = !kept && starts_with_any(name, names_.vector_registers, true);
      stack_[r] = name == names_.stack_pointer;
    }
  }

  std::vector<Seen> read(llvm::ArrayRef<std::uint8_t> bytes) const {
    std::vector<Seen> all;
    std::uint64_t size = 0;
    for (std::uint64_t at = 0; at < bytes.size(); at += std::max<std::uint64_t>(size, 1)) {
      llvm::MCInst instruction;
      if (disassembler_->getInstruction(instruction, size, bytes.slice(at), at, llvm::nulls()) ==
          llvm::MCDisassembler::Success)
        all.push_back(seen(instruction, at, size));
    }
    return all;
  }

 private:
  Seen seen(const llvm::MCInst& instruction, std::uint64_t at, std::uint64_t size) const {
    const llvm::MCInstrDesc& kind = instructions_.get(instruction.getOpcode());
    const std::string_view name = instructions_.getName(instruction.getOpcode());
    bool on_stack = false, with_vector = false;
    for (const llvm::MCOperand& operand : instruction) {
      if (!operand.isReg()) continue;
      on_stack = on_stack || stack_[operand.getReg()];
      with_vector = with_vector || vector_[operand.getReg()];
    }
    Seen made;
    made.at = at;
    made.adds.instructions = 1;
    made.adds.multiply_adds = with_vector && starts_with_any(name, names_.multiply_adds, false) ? 1 : 0;
    made.adds.loads = kind.mayLoad() ? 1 : 0;
    made.adds.stores = !kind.mayLoad() && kind.mayStore() ? 1 : 0;
    const bool spills = std::find(names_.spills.begin(), names_.spills.end(), name) != names_.spills.end();
    if (spills || (on_stack && with_vector)) (kind.mayLoad() ? made.adds.reloads : made.adds.spills) = 1;
    made.goes_on = !kind.isBarrier() && !kind.isReturn();
    std::uint64_t target = 0;
    if (kind.isBranch() && analysis_->evaluateBranch(instruction, at, size, target)) made.jumps_to = target;
    return made;
  }

  const llvm::MCRegisterInfo& registers_;
  const llvm::MCInstrInfo& instructions_;
  llvm::MCContext context_;
  std::unique_ptr<llvm::MCDisassembler> disassembler_;
  std::unique_ptr<llvm::MCInstrAnalysis> analysis_;
  const MachineNames& names_;
  std::vector<bool> vector_, stack_;
};

void add(LoopCode& sum, const LoopCode& one) {
  sum.instructions += one.instructions;
  sum.multiply_adds += one.multiply_adds;
  sum.loads += one.loads;
  sum.stores += one.stores;
  sum.spills += one.spills;
  sum.reloads += one.reloads;
}

/// Instructions that follow one another without a jump in or out, in the order of the code.
struct BasicBlock {
  LoopCode code;
  bool reached = false;
  std::vector<std::size_t> next, before;
};

/// `functions`: where they begin. What pads the code between blocks is never reached and leads nowhere.
std::vector<BasicBlock> blocks_of(const std::vector<Seen>& code, const std::set<std::uint64_t>& functions) {
  std::map<std::uint64_t, std::size_t> begins;  // by address
  for (const std::uint64_t function : functions) begins[function] = 0;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const bool after_jump = i == 0 || code[i - 1].jumps_to || !code[i - 1].goes_on;
    if (after_jump) begins[code[i].at] = 0;
    if (code[i].jumps_to) begins[*code[i].jumps_to] = 0;
  }
  std::size_t count = 0;
  for (auto& [at, index] : begins) index = count++;
  std::vector<BasicBlock> blocks(count);
  std::size_t block = 0;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (const auto found = begins.find(code[i].at); found != begins.end()) block = found->second;
    add(blocks[block].code, code[i].adds);
    const bool ends = i + 1 == code.size() || begins.contains(code[i + 1].at);
    if (!ends) continue;
    if (code[i].jumps_to) blocks[block].next.push_back(begins.at(*code[i].jumps_to));
    if (code[i].goes_on && i + 1 < code.size()) blocks[block].next.push_back(begins.at(code[i + 1].at));
  }
  std::vector<std::size_t> open;
  for (const std::uint64_t function : functions) open.push_back(begins.at(function));
  while (!open.empty()) {
    const std::size_t at = open.back();
    open.pop_back();
    if (blocks[at].reached) continue;
    blocks[at].reached = true;
    for (const std::size_t to : blocks[at].next) {
      blocks[to].before.push_back(at);
      open.push_back(to);
    }
  }
  return blocks;
}

/// By block, whether every way to it comes through each other one. Functions begin at blocks nothing leads
/// to.
std::vector<std::vector<bool>> dominators(const std::vector<BasicBlock>& blocks) {
  std::vector<std::vector<bool>> all(blocks.size(), std::vector<bool>(blocks.size(), true));
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      std::vector<bool> made(blocks.size(), !blocks[b].before.empty());
      for (const std::size_t from : blocks[b].before)
        for (std::size_t d = 0; d < blocks.size(); ++d) made[d] = made[d] && all[from][d];
      made[b] = true;
      if (made != all[b]) {
        all[b] = std::move(made);
        changed = true;
      }
    }
  }
  return all;
}

/// A loop: what leads back to a block through which all ways to it come. An innermost one holds no other.
std::vector<LoopCode> loops_of(const std::vector<Seen>& code, const std::set<std::uint64_t>& functions) {
  const std::vector<BasicBlock> blocks = blocks_of(code, functions);
  const auto dominates = dominators(blocks);
  std::map<std::size_t, std::vector<bool>> bodies;  // by header
  for (std::size_t from = 0; from < blocks.size(); ++from)
    for (const std::size_t header : blocks[from].next) {
      if (!blocks[from].reached || !dominates[from][header]) continue;
      auto& body = bodies.try_emplace(header, blocks.size()).first->second;
      body[header] = true;
      std::vector<std::size_t> open{from};
      while (!open.empty()) {
        const std::size_t at = open.back();
        open.pop_back();
        if (body[at]) continue;
        body[at] = true;
        open.insert(open.end(), blocks[at].before.begin(), blocks[at].before.end());
      }
    }
  std::vector<LoopCode> loops;
  for (const auto& [header, body] : bodies) {
    const bool innermost = std::none_of(bodies.begin(), bodies.end(), [&](const auto& other) {
      return other.first != header && body[other.first];
    });
    if (!innermost) continue;
    LoopCode sum;
    for (std::size_t b = 0; b < blocks.size(); ++b)
      if (body[b]) add(sum, blocks[b].code);
    loops.push_back(sum);
  }
  return loops;
}

/// By instruction, how many loops it is in, as far as jumps back tell: a loop's code is in one piece.
std::vector<int> depths_of(const std::vector<Seen>& code) {
  std::map<std::uint64_t, std::uint64_t> loops;  // from the first instruction to the last one
  for (const Seen& one : code)
    if (one.jumps_to && *one.jumps_to <= one.at)
      loops[*one.jumps_to] = std::max(loops[*one.jumps_to], one.at);
  std::map<std::uint64_t, int> changes;
  for (const auto& [first, last] : loops) {
    ++changes[first];
    --changes[last + 1];
  }
  std::vector<int> depths;
  int depth = 0;
  auto change = changes.begin();
  for (const Seen& one : code) {
    for (; change != changes.end() && change->first <= one.at; ++change) depth += change->second;
    depths.push_back(depth);
  }
  return depths;
}

/// Addresses in a section.
std::set<std::uint64_t> functions_in(const llvm::object::ObjectFile& file,
                                     const llvm::object::SectionRef& section) {
  std::set<std::uint64_t> found;
  for (const llvm::object::SymbolRef& symbol : file.symbols()) {
    auto type = symbol.getType();
    auto within = symbol.getSection();
    auto address = symbol.getAddress();
    if (type && within && address && *within != file.section_end() &&
        *type == llvm::object::SymbolRef::ST_Function && **within == section)
      found.insert(*address);
    llvm::consumeError(type.takeError());
    llvm::consumeError(within.takeError());
    llvm::consumeError(address.takeError());
  }
  return found;
}

}  // namespace

MachineCode read_machine_code(const std::string& object, const llvm::TargetMachine& machine,
                              bool with_loops) {
  MachineCode made;
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!file) {
    llvm::consumeError(file.takeError());
    return made;
  }
  const Reader reader(machine);
  LoopCode all;
  std::map<int, std::int64_t> spills_at;  // by depth
  int deepest = 0;
  for (const llvm::object::SectionRef& section : (*file)->sections()) {
    if (!section.isText()) continue;
    auto contents = section.getContents();
    if (!contents) {
      llvm::consumeError(contents.takeError());
      continue;
    }
    made.code_bytes += static_cast<std::int64_t>(contents->size());
    const std::vector<Seen> code =
        reader.read({reinterpret_cast<const std::uint8_t*>(contents->data()), contents->size()});
    for (const Seen& one : code) add(all, one.adds);
    const std::vector<int> depths = depths_of(code);
    for (std::size_t i = 0; i < code.size(); ++i) {
      if (code[i].adds.multiply_adds > 0) deepest = std::max(deepest, depths[i]);
      const std::int64_t count = code[i].adds.spills + code[i].adds.reloads;
      if (count > 0) spills_at[depths[i]] += count;
    }
    const std::vector<LoopCode> loops =
        with_loops ? loops_of(code, functions_in(**file, section)) : std::vector<LoopCode>{};
    made.innermost_loops.insert(made.innermost_loops.end(), loops.begin(), loops.end());
  }
  // Stores that nothing reloads are the context of a parallel loop, two words at a time.
  made.spills = all.reloads == 0 ? 0 : static_cast<int>(all.spills + all.reloads);
  if (made.spills > 0)
    for (const auto& [depth, count] : spills_at)
      made.hot_spills += static_cast<double>(count) * std::pow(kTrips, std::min(0, depth - deepest));
  return made;
}

}  // namespace syno::jit
