/* The executor: runs a program on workers. Private.
 *
 * The host issues instructions to the workers' streams in the program's order, with the waits that
 * their dependencies ask for; it does not wait itself until the end. How many tasks a step gives to
 * each stream, and after how many of them an instruction is done, is the same in every step, and
 * found once. So a process issues only the instructions of its own ranks; streams of ranks that
 * live in other processes are counters that only move when their owners work, and the program says
 * which count to wait for.
 */
#pragma once

#include "execute/check/gaps.h"
#include "execute/check/happens.h"
#include "execute/gate.h"
#include "execute/profile.h"
#include "execute/stall.h"
#include "execute/trace.h"
#include "execute/worker.h"
#include "program/stage.h"

typedef struct wfi_recorded wfi_recorded; /* recorded.h */

/* Arguments and results of one step. */
typedef struct wfi_step {
    wfi_step_args args; /* its first_sample is filled by the executor */
    double lr;
    const void *const *inputs; /* [n_values] by input value, from the step's ... */
    int64_t first_sample;      /* ... sample on */
    int64_t batch_sample;  /* the program's first sample in the batch: random numbers follow it */
    void *const *outputs;  /* [n_outputs] where to copy outputs, NULL = not wanted */
    double *records;       /* [n_micro][2] loss sums and hits */
    double *gradient_norm; /* where to put it, if clipping */
} wfi_step;

struct wfi_executor {
    wfi_pool pool; /* of the arrays */
    const wf_program *p;
    wfi_worker *workers;  /* [n_ranks], borrowed */
    wfi_code **code;      /* [n_kernel_sets][n_variants]; those of
                           * the first set here are the program's, those of ranks in other
                           * processes NULL */
    wfi_squares *squares; /* [n_ranks][n_units] that the rank's total norm is made of */
    int32_t *end;         /* [n_instructions] how many tasks of a step its stream has, up to it */
    int32_t *n_tasks;     /* [n_ranks * WFI_N_STREAMS] that a step gives to each stream */
    uint64_t *begin;      /* the same streams: their epochs when the step began */
    int32_t *first;       /* [n_instructions] place in the order of the instruction's group */
    int32_t *n_group;     /* [n_instructions] how many ranks take part in it together */
    int32_t *own;         /* [n_own] places in the order of the groups that this process issues */
    int32_t n_own;
    int32_t first_local; /* rank */
    wfi_carrier carrier; /* of bytes between ranks */
    wfi_profile *profile;
    wfi_trace *trace;       /* NULL: not wanted */
    wfi_stall *stall;       /* NULL: no watchdog checks for progress */
    wfi_happens *happens;   /* NULL: events are not checked */
    wfi_gaps *gaps;         /* NULL: memory has no gaps */
    wfi_recorded *recorded; /* [n_instructions] captured segments; NULL: none */
    int64_t delay_us;       /* > 0: random delays before each instruction, for tests */
    int64_t n_waits;        /* issued in this step */
    int64_t left_out_wait;  /* for tests: that one, counted from 1, is not issued; 0 = none */
    wfi_step step;          /* that runs, or ran last */
};

static inline const wfi_code *wfi_executor_code(const wfi_executor *e, int32_t rank,
                                                int32_t variant) {
    return e->code[wfi_program_kernel_set(e->p, rank) * e->p->n_variants + variant];
}

/* Prepares every kernel, on the compute streams of their ranks. */
wf_status wfi_executor_create(const wf_program *p, wfi_worker *workers, wfi_profile *profile,
                              int64_t delay_us, bool traces, wfi_stall *stall,
                              wfi_executor **executor_out);
void wfi_executor_destroy(wfi_executor *e); /* NULL is allowed; the streams are idle */

/* Runs one step to its end; the results are in e->step. After a failure the trainer's devices stay
 * failed. */
wf_status wfi_executor_run(wfi_executor *e, const wfi_step *step);

/* ---- shared by executor.c, instructions.c, stall.c, and issue.c and its callers ---- */

/* The place of its stream among those of all ranks. */
static inline int32_t wfi_executor_stream(const wfi_instruction *now) {
    return now->rank * WFI_N_STREAMS + (int32_t)now->stream;
}
/* All tasks of instruction i in this step but the last `n_left` are done. */
static inline wfi_event wfi_executor_event(const wfi_executor *e, int32_t i, int32_t n_left) {
    const wfi_instruction *now = &e->p->instructions[i];
    return (wfi_event){e->workers[now->rank].streams[now->stream],
                       e->begin[wfi_executor_stream(now)] + (uint64_t)(e->end[i] - n_left)};
}

static inline void *wfi_executor_at(const wfi_executor *e, const wfi_reference *r) {
    const wfi_block *block = &e->p->blocks[r->block];
    return e->workers[block->rank].arenas[block->space].base + block->offset + r->offset;
}
/* The same; the arena's peak counts the reference's bytes, all of which are touched. */
void *wfi_executor_touch(const wfi_executor *e, const wfi_reference *r);

/* "forward layer3.0, microbatch 2" */
void wfi_executor_name(const wfi_executor *e, int32_t i, char *text, size_t bytes);
/* Runs instruction (intptr_t)argument, in which one rank takes part. A task. */
wf_status wfi_executor_instruction(void *self, void *argument);
/* Adds sign * CPU time to the trace of instruction i: called before and after its work, or a
 * phase. */
void wfi_executor_count_cpu(const wfi_executor *e, int32_t i, int sign);
static inline void wfi_executor_begin(const wfi_executor *e, int32_t i, bool is_first) {
    const wfi_instruction *now = &e->p->instructions[i];
    if (!e->trace) return;
    if (is_first)
        wfi_stream_mark(e->workers[now->rank].streams[now->stream], &e->trace->begin_ns[i]);
    wfi_executor_count_cpu(e, i, -1);
}
static inline void wfi_executor_end(const wfi_executor *e, int32_t i, bool is_last) {
    const wfi_instruction *now = &e->p->instructions[i];
    if (!e->trace) return;
    wfi_executor_count_cpu(e, i, 1);
    if (!is_last) return;
    wfi_stream_mark(e->workers[now->rank].streams[now->stream], &e->trace->end_ns[i]);
}
/* When instruction i is through. */
static inline wf_status wfi_executor_check(const wfi_executor *e, int32_t i) {
    return e->gaps ? wfi_gaps_check(e->gaps, i) : WF_OK;
}
/* delay.c: before an instruction, the delay and the fault of the environment. */
void wfi_executor_delay(const wfi_executor *e, int32_t i);
