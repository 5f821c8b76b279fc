/* The steps of the network that network.h describes. */
#define _POSIX_C_SOURCE 200809L

#include "network.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
@INCLUDES@
#define ARENA_BYTES ((size_t)@ARENA@)
#define WEIGHT_BYTES ((size_t)@WEIGHT_BYTES@)
#define WEIGHT_MARK "@WEIGHT_MARK@"
#define WEIGHT_SUM UINT64_C(@WEIGHT_SUM@)

typedef void syno_body(void* context, int64_t begin, int64_t end, void* private_memory);
typedef void syno_parallel(void* pool, syno_body* body, void* context, int64_t count);

/* Kernels: row-major arguments, inputs then outputs; without `parallel` they compute in the caller. */
@KERNELS@
const syno_tensor syno_inputs[SYNO_INPUTS + 1] = {
@INPUT_ROWS@  {NULL, NULL, 0, {0}, 0}};
const syno_tensor syno_outputs[SYNO_OUTPUTS + 1] = {
@OUTPUT_ROWS@  {NULL, NULL, 0, {0}, 0}};

static int named(const syno_tensor* tensors, const char* name) {
  for (int i = 0; tensors[i].name; ++i)
    if (strcmp(tensors[i].name, name) == 0) return i;
  return -1;
}
int syno_input_named(const char* name) { return named(syno_inputs, name); }
int syno_output_named(const char* name) { return named(syno_outputs, name); }

const char* syno_message(int status) {
  static const char* const words[] = {"done",
                                      "the file of weights cannot be read",
                                      "the file of weights is damaged, or not the one that was written with this network",
                                      "this CPU has not the instructions that the network's code is made of: @CPU@",
                                      "there is no memory for the workspace",
                                      "an input names a row that a table does not have"@WORDS@};
  return status >= 0 && status < (int)(sizeof words / sizeof *words) ? words[status] : "no status";
}

static inline float from_bfloat16(uint16_t half) {
  const uint32_t word = (uint32_t)half << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}
static inline uint16_t to_bfloat16(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  if (value != value) return (uint16_t)(word >> 16 | 0x40);
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
static inline float from_float16(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  uint32_t word = sign | (exponent + 112) << 23 | fraction << 13;
  float value;
  if (exponent == 0x1f) word = sign | 0x7f800000 | fraction << 13;
  memcpy(&value, &word, sizeof value);
  if (exponent == 0) value = (sign ? -0x1p-24f : 0x1p-24f) * (float)fraction;
  return value;
}
static inline uint16_t to_float16(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  const uint32_t sign = word >> 16 & 0x8000, magnitude = word & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (magnitude >= 0x38800000) {
    const uint32_t moved = magnitude - 0x38000000;
    return (uint16_t)(sign | ((moved + 0xfff + (moved >> 13 & 1)) >> 13));
  }
  if (magnitude < 0x33000000) return (uint16_t)sign;
  const uint32_t shift = 126 - (magnitude >> 23), whole = (magnitude & 0x7fffff) | 0x800000;
  const uint32_t kept = whole >> shift, rest = whole & ((1u << shift) - 1), half = 1u << (shift - 1);
  return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1)))));
}

double syno_element(const syno_tensor* tensor, const void* data, size_t at) {
  const char* type = tensor->dtype;
  if (strcmp(type, "float32") == 0) return (double)((const float*)data)[at];
  if (strcmp(type, "float64") == 0) return ((const double*)data)[at];
  if (strcmp(type, "bfloat16") == 0) return (double)from_bfloat16(((const uint16_t*)data)[at]);
  if (strcmp(type, "float16") == 0) return (double)from_float16(((const uint16_t*)data)[at]);
  if (strcmp(type, "int64") == 0) return (double)((const int64_t*)data)[at];
  if (strcmp(type, "int32") == 0) return (double)((const int32_t*)data)[at];
  if (strcmp(type, "int16") == 0) return (double)((const int16_t*)data)[at];
  if (strcmp(type, "int8") == 0) return (double)((const int8_t*)data)[at];
  return (double)((const uint8_t*)data)[at];
}

@SIZES@struct syno_network {
  const char* weights;
};

static int cpu_fits(void) {
@CPU_CHECK@
  return 1;
}

int syno_open(const char* weights, syno_network** network) {
  struct stat status;
  char* mapped = NULL;
  *network = NULL;
  if (!cpu_fits()) return SYNO_OTHER_CPU;
  const int file = open(weights, O_RDONLY);
  if (file < 0) return SYNO_NO_FILE;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return close(file), SYNO_NO_FILE;
  if ((uint64_t)status.st_size != WEIGHT_BYTES) return close(file), SYNO_OTHER_FILE;
  mapped = mmap(NULL, WEIGHT_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return SYNO_NO_MEMORY;
  if (memcmp(mapped, WEIGHT_MARK, sizeof WEIGHT_MARK - 1) != 0) {
    munmap(mapped, WEIGHT_BYTES);
    return SYNO_OTHER_FILE;
  }
  *network = malloc(sizeof **network);
  if (!*network) {
    munmap(mapped, WEIGHT_BYTES);
    return SYNO_NO_MEMORY;
  }
  (*network)->weights = mapped;
  return SYNO_OK;
}

/* A sum in which every word counts for its place. */
int syno_check(const syno_network* network) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < WEIGHT_BYTES / 8; ++i) {
    uint64_t word;
    memcpy(&word, network->weights + 8 * i, 8);
    sum += word * (2 * i + 1);
  }
  return sum == WEIGHT_SUM ? SYNO_OK : SYNO_OTHER_FILE;
}

void syno_close(syno_network* network) {
  if (!network) return;
  munmap((void*)network->weights, WEIGHT_BYTES);
  free(network);
}

/* Functions */
@FUNCTIONS@
#define I(n) ((void*)inputs[n])
#define O(n) (outputs[n])
#define W(at) ((void*)(weights + (at)))
#define A(at) ((void*)(arena + (at)))

@RUNS@
int syno_run(const syno_network* network, @SIZES_GIVEN@const void* const* inputs, void* const* outputs, void* workspace) {
  void* own = NULL;
  if (!workspace && !(workspace = own = aligned_alloc(64, SYNO_WORKSPACE_BYTES))) return SYNO_NO_MEMORY;
  const int status = @RUN@;
  free(own);
  return status;
}
