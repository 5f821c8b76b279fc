#include "synth/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "support/json.hpp"

namespace syno::synth {
namespace {

using Json = nlohmann::json;

constexpr int kCheckpointFormat = 1;
constexpr std::size_t kCheckDigits = 32;

std::string check_of(std::string_view line) { return to_hex(hash_text(line)); }

std::string whole(int file, const std::string& path) {
  std::string text;
  char block[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail<SpecError>("checkpoint", "cannot read '{}': {}", path, std::strerror(errno));
    if (got == 0) return text;
    text.append(block, static_cast<std::size_t>(got));
  }
}

Reason reason_named(const std::string& name) {
  const std::size_t count = rules().size() + static_cast<std::size_t>(Limit::Occurrences) + 1;
  for (std::size_t r = 0; r < count; ++r) {
    if (name_of(static_cast<Reason>(r)) == name) return static_cast<Reason>(r);
  }
  return kAccepted;
}

}  // namespace

Checkpoint::Checkpoint(std::string path, const Spec& spec, const Space& space)
    : path_(std::move(path)), head_(pgraph::to_text(pgraph::PGraph(spec.signature))), space_(space) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    fail<SpecError>("checkpoint", "cannot open '{}': {}; give a file in a folder that can be written", path_,
                    std::strerror(errno));
  }
  try {
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      fail<SpecError>("checkpoint", "'{}' is in use by another enumeration; give another file", path_);
    }
    const Json header = {{"syno_enumeration", kCheckpointFormat},
                         {"spec", to_hex(hash_text(spec_to_json(spec)))},
                         {"max_steps", space.max_steps},
                         {"shape_distance", space.shape_distance},
                         {"branches", space.branches},
                         {"space", to_hex(space.fingerprint)}};
    read(whole(file_, path_), header.dump() + "\n");
  } catch (...) {
    ::close(file_);
    throw;
  }
}

Checkpoint::~Checkpoint() { ::close(file_); }

void Checkpoint::read(std::string_view text, const std::string& header) {
  if (text.size() < header.size() && header.starts_with(text)) {  // new, or cut off in its first line
    if (::ftruncate(file_, 0) != 0) fail<SpecError>("checkpoint", "cannot write '{}'", path_);
    write(header);
    return;
  }
  if (!text.starts_with(header)) {
    const std::string_view first = text.substr(0, text.find('\n'));
    const Json given = first.size() <= 1 << 16 ? Json::parse(first, nullptr, false) : Json();
    if (!given.is_object() || !given.contains("syno_enumeration")) {
      fail<FormatError>("checkpoint", "'{}' is not a checkpoint of an enumeration; give another file", path_);
    }
    const Json wanted = Json::parse(header);
    if (given["syno_enumeration"] != wanted["syno_enumeration"]) {
      fail<FormatError>("checkpoint", "'{}' has version {}, not one that this build reads ({})", path_,
                        described(given["syno_enumeration"]), kCheckpointFormat);
    }
    for (const char* key : {"spec", "max_steps", "shape_distance", "branches", "space"}) {
      if (given.contains(key) && given[key] == wanted[key]) continue;
      fail<SpecError>("checkpoint",
                      "'{}' is of another enumeration: its {} is {}, this one's {}; give another file, or "
                      "remove this one to begin anew",
                      path_, key, given.contains(key) ? described(given[key]) : "missing",
                      described(wanted[key]));
    }
    fail<FormatError>("checkpoint", "the first line of '{}' is damaged; remove the file to begin anew",
                      path_);
  }
  std::vector<bool> seen(space_.branches);
  std::size_t at = header.size();
  for (std::size_t line = 2; at < text.size(); ++line) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) break;  // cut off while it was written
    const std::string_view content = text.substr(at, end - at);
    const std::string_view json = content.substr(std::min(content.size(), kCheckDigits + 1));
    if (content.size() <= kCheckDigits || content.substr(0, kCheckDigits) != check_of(json)) {
      fail<FormatError>("checkpoint", "line {} of '{}' is damaged; remove the file to begin anew", line,
                        path_);
    }
    Branch branch = parse_branch(json, line);
    if (branch.number >= seen.size() || seen[branch.number]) {
      fail<FormatError>("checkpoint", "line {} of '{}' repeats branch {}, or there is no such branch", line,
                        path_, branch.number);
    }
    seen[branch.number] = true;
    finished_.push_back(std::move(branch));
    at = end + 1;
  }
  if (at < text.size() && ::ftruncate(file_, static_cast<off_t>(at)) != 0) {
    fail<SpecError>("checkpoint", "cannot write '{}': {}", path_, std::strerror(errno));
  }
}

Checkpoint::Branch Checkpoint::parse_branch(std::string_view text, std::size_t line) const {
  try {
    const Json json = parse_json("checkpoint", text);
    Branch branch;
    branch.number = json.at("branch").get<std::size_t>();
    branch.counters.children = json.at("children").get<std::uint64_t>();
    branch.counters.states = json.at("states").get<std::uint64_t>();
    branch.counters.finished = json.at("finished").get<std::uint64_t>();
    for (const auto& [name, count] : json.at("rejected").items()) {
      const Reason reason = reason_named(name);
      if (reason == kAccepted) fail<FormatError>("checkpoint", "there is no rule or budget '{}'", name);
      branch.counters.rejected[reason] = count.get<std::uint64_t>();
    }
    for (const Json& row : json.at("operators")) {
      branch.found.push_back(
          {pgraph::parse(head_ + row.at("graph").get<std::string>()),
           {row.at("flops").get<double>(), row.at("params").get<double>(), row.at("bytes").get<double>()},
           row.at("steps").get<int>()});
    }
    return branch;
  } catch (const Json::exception& error) {
    fail<FormatError>("checkpoint", "line {} of '{}': {}", line, path_, error.what());
  } catch (const Error& error) {
    fail<FormatError>("checkpoint", "line {} of '{}': {}", line, path_, error.what());
  }
}

void Checkpoint::append(const Branch& branch) {
  Json rejected = Json::object();
  for (std::size_t r = 0; r < branch.counters.rejected.size(); ++r) {
    if (branch.counters.rejected[r] > 0)
      rejected[std::string(name_of(static_cast<Reason>(r)))] = branch.counters.rejected[r];
  }
  Json operators = Json::array();
  for (const Found& found : branch.found) {
    const std::string text = pgraph::to_text(found.graph);
    SYNO_ASSERT(text.starts_with(head_), "the texts of a spec's operators begin alike");
    operators.push_back({{"graph", text.substr(head_.size())},
                         {"flops", found.work.flops},
                         {"params", found.work.params},
                         {"bytes", found.work.bytes},
                         {"steps", found.steps}});
  }
  const std::string json = Json{
      {"branch", branch.number},
      {"children", branch.counters.children},
      {"states", branch.counters.states},
      {"finished", branch.counters.finished},
      {"rejected", rejected},
      {"operators", operators}}.dump();
  const std::lock_guard lock(mutex_);
  write(check_of(json) + " " + json + "\n");
}

void Checkpoint::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(file_, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail<SpecError>("checkpoint", "cannot write '{}': {}", path_, std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

}  // namespace syno::synth
