/* Environment variables that weft reads. Private. None of them changes a result, except
 * WEFT_FLIP_BIT and WEFT_RAISE, which tests use to damage a run. */
#pragma once

#include "base/base.h"

/* name, type, value when unset, help */
#define WFI_ENV_LIST(X)                                                                            \
    X(WEFT_LOG, TEXT, "", "log to standard error: error, warn, info or debug, then :topic,topic")  \
    X(WEFT_TIMEOUT_MS, COUNT, "600000", "deadline of every wait, in milliseconds")                 \
    X(WEFT_STALL_MS, COUNT, "10000",                                                               \
      "report the awaited rank after this many milliseconds without progress; "                    \
      "0: never")                                                                                  \
    X(WEFT_RESTART, COUNT, "0",                                                                    \
      "number of restarts before this start, set by --restarts; above 0, weft "                    \
      "train continues from the checkpoint in --out")                                              \
    X(WEFT_TOKEN, SECRET, "",                                                                      \
      "token that the ranks of a job present over tcp://; the same in all ranks")                  \
    X(WEFT_MPI_LIBRARY, TEXT, "",                                                                  \
      "path of the MPI library (default: that of the launcher, Open MPI or "                       \
      "MPICH)")                                                                                    \
    X(WEFT_REPLAY, COUNT, "1",                                                                     \
      "0: queue the kernels of each step one by one, even if a device could "                      \
      "replay them")                                                                               \
    X(WEFT_DELAY_US, COUNT, "0",                                                                   \
      "tests: random delay of up to this many microseconds before each "                           \
      "instruction")                                                                               \
    X(WEFT_SLOW_RANK, TEXT, "",                                                                    \
      "tests and measurements: RANK:FACTOR; that rank of the plan takes FACTOR times as long")     \
    X(WEFT_FLIP_BIT, TEXT, "",                                                                     \
      "tests: STEP:RANK:BIT: flip this bit of a rank's state before that step, "                   \
      "unless ranks have been restarted")                                                          \
    X(WEFT_RAISE, TEXT, "",                                                                        \
      "tests: SIGNAL:INSTRUCTION:RANK:N: raise the signal before the Nth such instruction of a "   \
      "rank, unless ranks have been restarted")                                                    \
    X(WEFT_ARENA_SHIFT, COUNT, "0",                                                                \
      "tests: shift device memory by this many bytes, a multiple of 64")                           \
    X(WEFT_ARENA_GAP, COUNT, "0",                                                                  \
      "tests: gap between blocks of device memory, in bytes; writes into a gap "                   \
      "are reported")                                                                              \
    X(WEFT_CHECK_EVENTS, COUNT, "0",                                                               \
      "1: check in each step that streams touch only bytes released to them by an event")

/* SECRET: text that no report shows. */
typedef enum wfi_env_type { WFI_ENV_TEXT, WFI_ENV_COUNT, WFI_ENV_SECRET } wfi_env_type;

typedef enum wfi_env_id {
#define WFI_ENV_ENUM(name, type, fallback, help) WFI_##name,
    WFI_ENV_LIST(WFI_ENV_ENUM)
#undef WFI_ENV_ENUM
        WFI_N_ENV
} wfi_env_id;

typedef struct wfi_env {
    const char *name, *fallback, *help;
    wfi_env_type type;
} wfi_env;

extern const wfi_env wfi_env_table[WFI_N_ENV];

bool wfi_env_is_set(wfi_env_id id); /* and not empty */

/* The variable's text, or its default if it is unset or empty. Borrowed from the environment. */
const char *wfi_env_text(wfi_env_id id);

/* The same as a whole number from 0. Errors: INVALID_ARG; the sentence names the
 * variable and its value. */
wf_status wfi_env_count(wf_context *ctx, wfi_env_id id, int64_t *value_out);

/* Replaces a timeout of 0 by WEFT_TIMEOUT_MS. Errors: INVALID_ARG, also for one below 1. */
wf_status wfi_env_timeout(wf_context *ctx, int64_t *timeout_ms);
