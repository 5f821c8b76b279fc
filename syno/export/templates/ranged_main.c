/* Computes examples at several sizes and compares them with what float64 gives for them:
 * cc -O2 main.c libsyno_network.a -lm -o main && ./main */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "network.h"

static void* read_file(const char* name, size_t size) {
  void* data = aligned_alloc(64, size);
  FILE* file = fopen(name, "rb");
  if (!data || !file || fread(data, 1, size, file) != size) return perror(name), exit(2), data;
  fclose(file);
  return data;
}

int main(void) {
  /* Of each example: its sizes, where inputs begin in the file, and the outputs, as doubles; and how much each may differ,
   * of its largest value. */
  static const int64_t sizes[][SYNO_SIZES + 1] = {@SIZES@};
  static const size_t given[][SYNO_INPUTS + 1] = {@GIVEN@};
  static const size_t wanted[][SYNO_OUTPUTS + 1] = {@WANTED@};
  static const double limits[][SYNO_OUTPUTS + 1] = {@LIMITS@};
  syno_tensor given_as[SYNO_INPUTS + 1], made_as[SYNO_OUTPUTS + 1];
  const void* inputs[SYNO_INPUTS + 1] = {NULL};
  void* outputs[SYNO_OUTPUTS + 1] = {NULL};
  int64_t beyond[SYNO_SIZES + 1];
  syno_network* network;
  double widest = 0;
  int failed = 0;

  int status = syno_open("weights.bin", &network);
  if (status == SYNO_OK) status = syno_check(network);
  if (status != SYNO_OK) return fprintf(stderr, "%s\n", syno_message(status)), 2;
  const char* vector = read_file("test_vector.bin", @VECTOR@);
  void* workspace = aligned_alloc(64, SYNO_WORKSPACE_BYTES);
  for (int e = 0; e < @COUNT@; ++e) {
    status = syno_at(sizes[e], given_as, made_as);
    for (int i = 0; i < SYNO_INPUTS; ++i) inputs[i] = vector + given[e][i];
    for (int i = 0; i < SYNO_OUTPUTS; ++i) outputs[i] = malloc(made_as[i].bytes + 1);
    if (status == SYNO_OK) status = syno_run(network, sizes[e], inputs, outputs, workspace);
    if (status != SYNO_OK) return fprintf(stderr, "%s\n", syno_message(status)), 2;
    for (int s = 0; s < SYNO_SIZES; ++s) printf("%s %lld; ", syno_sizes[s].name, (long long)sizes[e][s]);

    for (int i = 0; i < SYNO_OUTPUTS; ++i) {
      const syno_tensor* tensor = &made_as[i];
      const double* reference = (const double*)(vector + wanted[e][i]);
      double apart = 0, largest = 0;
      size_t count = 1;
      for (int d = 0; d < tensor->rank; ++d) count *= (size_t)tensor->shape[d];
      for (size_t at = 0; at < count; ++at) {
        const double value = syno_element(tensor, outputs[i], at);
        if (isfinite(reference[at])) largest = fmax(largest, fabs(reference[at]));
        if (value == reference[at] || (isnan(value) && isnan(reference[at]))) continue;
        apart = isfinite(value) && isfinite(reference[at]) ? fmax(apart, fabs(value - reference[at])) : INFINITY;
      }
      printf("%s: max_abs_err %.9g of values up to %.9g\n", tensor->name, apart, largest);
      if (!(apart <= limits[e][i] * (largest > 0 ? largest : 1))) failed = 1;
      widest = fmax(widest, apart);
      free(outputs[i]);
    }
  }
  for (int s = 0; s < SYNO_SIZES; ++s) beyond[s] = syno_sizes[s].greatest + 1;
  if (syno_run(network, beyond, inputs, outputs, workspace) != SYNO_OTHER_SIZE) failed = 1;
  free(workspace);
  free((void*)vector);
  syno_close(network);
  printf("max_abs_err %.9g\n", widest);
  return failed;
}
