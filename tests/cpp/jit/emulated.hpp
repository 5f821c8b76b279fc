// Kernels for AArch64, linked by a cross compiler into one program with their arguments' memory read from a
// file, and run under an emulator: one link and one run for any number of kernels.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "nests.hpp"

namespace syno::jit::testing_nests {

namespace fs = std::filesystem;

class Emulated {
 public:
  static constexpr const char* kCompiler = "aarch64-linux-gnu-gcc";
  static constexpr const char* kEmulator = "qemu-aarch64";

  /// Which tool is missing; "" where all are there.
  static std::string missing() {
    std::string names;
    for (const char* tool : {kCompiler, kEmulator}) {
      std::istringstream path(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
      bool found = false;
      for (std::string folder; std::getline(path, folder, ':');)
        found = found || ::access((folder + "/" + tool).c_str(), X_OK) == 0;
      if (!found) names += (names.empty() ? "" : ", ") + std::string(tool);
    }
    return names;
  }

  /// `model`: of the emulated CPU.
  explicit Emulated(std::string model) : model_(std::move(model)) {
    std::string pattern = (fs::temp_directory_path() / "syno-emulated-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Emulated() { fs::remove_all(folder_); }
  Emulated(const Emulated&) = delete;
  Emulated& operator=(const Emulated&) = delete;

  /// `arguments` must live until run(), which writes what the kernel made of them.
  void add(const Kernel& kernel, std::vector<Argument>& arguments, std::string name) {
    if (objects_.insert(kernel.symbol()).second)
      std::ofstream(folder_ / (kernel.symbol() + ".o"), std::ios::binary) << kernel.object();
    calls_.push_back({kernel.symbol(), kernel.workspace_bytes(), &arguments, std::move(name)});
  }

  void run() {
    write_program();
    write_arguments();
    std::vector<std::string> link{kCompiler, "-O1", "-static", "-o", "runner", "runner.c"};
    for (const std::string& symbol : objects_) link.push_back(symbol + ".o");
    ASSERT_EQ(command(link), 0) << said();
    const int status = command({kEmulator, "-cpu", model_, "./runner"});
    read_arguments(status);
  }

 private:
  struct Call {
    std::string symbol;
    std::pair<std::int64_t, std::int64_t> workspace;
    std::vector<Argument>* arguments;
    std::string name;
  };

  void write_program() {
    std::ofstream out(folder_ / "runner.c");
    out << R"(#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void body_t(void*, int64_t, int64_t, void*);
typedef void parallel_t(void*, body_t*, void*, int64_t);
typedef void kernel_t(void* const*, void*, parallel_t*, void*);
struct call { kernel_t* kernel; int64_t shared, private; int arguments; };
/* Three ranges, the last one first; each finds memory that is not clean. */
static void parallel(void* memory, body_t* body, void* context, int64_t count) {
  const int64_t a = count / 3, b = 2 * count / 3;
  body(context, b, count, memory);
  body(context, 0, a, memory);
  body(context, a, b, memory);
}
static void* memory_of(int64_t bytes) {
  void* made = aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!made) exit(3);
  return memset(made, 0xa5, (bytes + 127) / 64 * 64);
}
static int64_t number(FILE* in) {
  int64_t value;
  if (fread(&value, 8, 1, in) != 1) exit(4);
  return value;
}
)";
    for (const std::string& symbol : objects_) out << "kernel_t " << symbol << ";\n";
    out << "static const struct call calls[] = {\n";
    for (const Call& call : calls_)
      out << "  {" << call.symbol << ", " << call.workspace.first << ", " << call.workspace.second << ", "
          << call.arguments->size() << "},\n";
    out << R"(};
int main(void) {
  FILE* in = fopen("in", "rb");
  FILE* out = fopen("out", "wb");
  if (!in || !out) return 5;
  for (size_t c = 0; c < sizeof calls / sizeof calls[0]; ++c) {
    char* bytes[64];
    void* arguments[64];
    int64_t sizes[64];
    for (int i = 0; i < calls[c].arguments; ++i) {
      sizes[i] = number(in);
      const int64_t offset = number(in);
      bytes[i] = memory_of(sizes[i]);
      if (fread(bytes[i], 1, sizes[i], in) != (size_t)sizes[i]) return 6;
      arguments[i] = bytes[i] + offset;
    }
    char* workspace = memory_of(calls[c].shared + calls[c].private);
    char* private = memory_of(calls[c].private);
    /* In the caller alone, then by ranges. */
    if (c % 2) calls[c].kernel(arguments, workspace, NULL, NULL);
    else calls[c].kernel(arguments, workspace, parallel, private);
    for (int i = 0; i < calls[c].arguments; ++i) {
      if (fwrite(bytes[i], 1, sizes[i], out) != (size_t)sizes[i]) return 7;
      free(bytes[i]);
    }
    fflush(out); /* who reads it sees which kernel ended the program */
    free(workspace);
    free(private);
  }
  return 0;
}
)";
  }

  void write_arguments() const {
    std::ofstream out(folder_ / "in", std::ios::binary);
    const auto number = [&](std::size_t value) {
      const auto wide = static_cast<std::int64_t>(value);
      out.write(reinterpret_cast<const char*>(&wide), 8);
    };
    for (const Call& call : calls_)
      for (const Argument& argument : *call.arguments) {
        number(argument.bytes().size());
        number(argument.offset_bytes());
        out << argument.bytes();
      }
  }

  void read_arguments(int status) {
    std::ifstream in(folder_ / "out", std::ios::binary);
    for (const Call& call : calls_)
      for (Argument& argument : *call.arguments) {
        std::string bytes(argument.bytes().size(), '\0');
        in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        ASSERT_EQ(static_cast<std::size_t>(in.gcount()), bytes.size())
            << call.name << " ended the program (status " << status << ")\n"
            << said();
        argument.set_bytes(std::move(bytes));
      }
    ASSERT_EQ(status, 0) << said();
  }

  /// Runs it in the folder; what it says goes to a file there.
  int command(const std::vector<std::string>& words) const {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addchdir_np(&actions, folder_.c_str());
    ::posix_spawn_file_actions_addopen(&actions, 2, "said", O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::pid_t child = 0;
    int status = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (status != 0) return status;
    ::waitpid(child, &status, 0);
    return status;
  }

  std::string said() const {
    std::ifstream in(folder_ / "said");
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string model_;
  fs::path folder_;
  std::set<std::string> objects_;
  std::vector<Call> calls_;
};

}  // namespace syno::jit::testing_nests
