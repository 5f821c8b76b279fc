/* @ABOUT@
 *
 * @FOR@ Machine code for @CPU@.
 * One call runs on one thread; several threads may call at once, each with a workspace of its own.
 * Link libsyno_network.a: `cc -O2 main.c libsyno_network.a -lm -o main && ./main` computes and checks an example.
 *
@TENSORS@
 */
#ifndef SYNO_NETWORK_H
#define SYNO_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYNO_INPUTS @INPUTS@
#define SYNO_OUTPUTS @OUTPUTS@
/* Memory of a running call, at an address that is a multiple of 64. */
#define SYNO_WORKSPACE_BYTES @WORKSPACE@

/* What functions return; syno_message() has it in words. */
enum {
  SYNO_OK = 0,
  SYNO_NO_FILE = 1,    /* the file of weights cannot be read */
  SYNO_OTHER_FILE = 2, /* it is damaged, or not the one that was written with this header */
  SYNO_OTHER_CPU = 3,  /* this CPU lacks instructions that the code is made of */
  SYNO_NO_MEMORY = 4,  /* there is no memory for the workspace */
  SYNO_BAD_INDEX = 5@STATUSES@
};
const char* syno_message(int status);

/* A row-major tensor that a caller gives or takes; dtype as NumPy names it, bool in one byte. */
typedef struct {
  const char* name;
  const char* dtype;
  int rank;
  int64_t shape[@RANK@];
  size_t bytes;
} syno_tensor;
extern const syno_tensor syno_inputs[SYNO_INPUTS + 1];
extern const syno_tensor syno_outputs[SYNO_OUTPUTS + 1];
@SIZES@/* Its number, or -1. */
int syno_input_named(const char* name);
int syno_output_named(const char* name);
/* An element of such a tensor as a number. */
double syno_element(const syno_tensor* tensor, const void* data, size_t at);

typedef struct syno_network syno_network;
/* Maps the file of weights into memory, without reading it, after a look at the CPU. */
int syno_open(const char* weights, syno_network** network);
void syno_close(syno_network* network);
/* Reads all weights: SYNO_OTHER_FILE where they are damaged. */
int syno_check(const syno_network* network);

/* @COMPUTES@ outputs[0 .. SYNO_OUTPUTS) of inputs[0 .. SYNO_INPUTS), which overlap none of them.
 * workspace: SYNO_WORKSPACE_BYTES of the calling thread; NULL: taken for this call. */
int syno_run(const syno_network* network, @SIZES_GIVEN@const void* const* inputs, void* const* outputs, void* workspace);

#ifdef __cplusplus
}
#endif
#endif
