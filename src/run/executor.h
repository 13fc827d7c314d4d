/* The executor: walks one rank of a program on a device. Private.
 *
 * The host issues instructions to the device's streams in the program's order, with
 * the waits that its dependencies ask for; it does not wait itself until the end.
 */
#ifndef WFI_EXECUTOR_H
#define WFI_EXECUTOR_H

#include "device/device.h"
#include "program/program.h"
#include "run/observer.h"
#include "run/profile.h"

/* What one step is given and gives back. */
typedef struct wfi_step {
    wfi_step_args args; /* first_sample is filled by the executor */
    double lr;
    const void *const *inputs; /* [n_values] the global batch, by input value */
    void *const *outputs;      /* [n_outputs] where to copy outputs, NULL = not wanted */
    double *records;           /* [n_micro][2] loss sums and hits */
    double gradient_norm;      /* out, if clipping */
} wfi_step;

typedef struct wfi_executor {
    const wf_program *p;
    int32_t rank;
    wfi_device *device;
    wfi_stream_queue *const *streams; /* [WFI_N_STREAMS], borrowed */
    char *base;                       /* of the arena; may change between steps */
    wfi_observer *observer;
    wfi_profile *profile;
    int64_t delay_us; /* > 0: random delays before each instruction, for tests */
    wfi_step *step;   /* while one runs */
} wfi_executor;

/* Prepares every kernel of the rank, on the compute stream. */
wf_status wfi_executor_prepare(wfi_executor *e);
/* One step, to its end. */
wf_status wfi_executor_run(wfi_executor *e, wfi_step *step);

/* instructions.c: runs instruction (intptr_t)argument on the calling thread. */
wf_status wfi_executor_instruction(void *self, void *argument);

#endif
