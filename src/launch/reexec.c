/* This program again, as ranks that run one function of its table. Each rank gets its task in its
 * arguments: the name, the deadline, and the bytes of the argument. */
#include "comm/job/control.h"
#include "comm/place/launcher.h"
#include "launch/function.h"
#include "launch/process_group.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "--weft-rank-of"

enum { MARK_WORD = 1, NAME_WORD, TIMEOUT_WORD, ARG_WORD, N_WORDS };

/* ---- the one that spawns ---- */

static wf_status fail_as(wf_context *ctx, const wf_launch_result *result,
                         const wfi_failure *failure) {
    const wfi_failure_entry *first = wfi_failure_first(failure);
    wf_status status = first ? (wf_status)first->status : WF_REMOTE;
    const char *sentence = first && *first->sentence ? first->sentence : result->sentence;
    if (result->failed_rank < 0) return wfi_fail(ctx, WF_INTERRUPTED, "%s", result->sentence);
    if (result->signal) return wfi_fail(ctx, WF_REMOTE, "%s", result->sentence);
    return wfi_fail(ctx, status, "rank %d: %s", result->failed_rank, sentence);
}

wf_status wfi_spawn_processes(wf_context *ctx, const wf_spawn_config *config, int64_t timeout_ms,
                              int *failed_rank_out) {
    wf_launch_config launch = WF_LAUNCH_CONFIG_INIT;
    wf_launch_result result;
    wfi_failure failure;
    char timeout[24], mark[] = MARK;
    char *name = wfi_strdup(ctx, config->entry->name);
    char *arg = wfi_alloc(ctx, 2 * config->arg_bytes + 1, 1, "an argument");
    char *words[N_WORDS + 1] = {program_invocation_name, mark, name, timeout, arg, NULL};
    if (!name || !arg) {
        wfi_free(ctx, name);
        wfi_free(ctx, arg);
        return WF_NO_MEMORY;
    }
    snprintf(timeout, sizeof timeout, "%lld", (long long)timeout_ms);
    if (config->arg_bytes)
        sodium_bin2hex(arg, 2 * config->arg_bytes + 1, config->arg, config->arg_bytes);
    launch.n_ranks = config->n_ranks;
    launch.program = "/proc/self/exe";
    launch.argv = words;
    launch.out = config->out;
    launch.err = config->err;
    wf_status status = wfi_launch(ctx, &launch, &result, &failure);
    wfi_free(ctx, name);
    wfi_free(ctx, arg);
    if (status != WF_OK) return status;
    *failed_rank_out = result.failed_rank;
    return result.failed_rank < 0 && !result.interrupted_by ? WF_OK
                                                            : fail_as(ctx, &result, &failure);
}

/* ---- the ones that are spawned ---- */

/* Not by wf_job_join: a job of one rank, too, shares its failure with the process that spawned it.
 */
static wf_status join(wf_context *ctx, const char *timeout, wf_job **job_out) {
    wf_place place;
    if (!getenv(WFI_CONTROL_ENV))
        return wfi_fail(ctx, WF_INVALID_ARG, MARK " is for processes that wf_spawn has started");
    WF_TRY(wf_launch_place(ctx, &place));
    return wfi_control_join(ctx, place.job, place.rank, place.n_ranks, strtoll(timeout, NULL, 10),
                            job_out);
}

static wf_status run(wf_context *ctx, wf_job *job, const wf_rank_entry *entry, const char *hex) {
    size_t n = strlen(hex) / 2, n_read = 0;
    unsigned char *arg = wfi_alloc(ctx, n ? n : 1, 1, "an argument");
    if (!arg) return WF_NO_MEMORY;
    wf_status status = sodium_hex2bin(arg, n, hex, strlen(hex), NULL, &n_read, NULL) || n_read != n
                           ? wfi_fail(ctx, WF_CORRUPT, "the argument of %s is damaged", entry->name)
                           : entry->function(ctx, job, n ? arg : NULL);
    wfi_free(ctx, arg);
    return status;
}

/* A failure is left in the segment, where the process that spawned this one finds it. */
static int be_rank(wf_context *ctx, const wf_rank_entry *entry, char **argv) {
    wf_job *job;
    wf_status status = join(ctx, argv[TIMEOUT_WORD], &job);
    if (status != WF_OK) return status == WF_REMOTE || status == WF_TIMEOUT ? 4 : 1;
    status = entry ? run(ctx, job, entry, argv[ARG_WORD])
                   : wfi_fail(ctx, WF_INVALID_ARG,
                              "spawn: no function of the name '%.100s' was given to wf_spawn_main",
                              argv[NAME_WORD]);
    if (status == WF_OK) {
        wf_job_leave(job);
        return 0;
    }
    wfi_failure *failure = wfi_control_failure(job);
    wfi_failure_set(failure, status, wf_context_error(ctx));
    bool is_ours = wfi_failure_first(failure)->pid == getpid();
    wfi_control_abandon(job);
    return is_ours ? 1 : 4;
}

int wf_spawn_main(int argc, char **argv, const wf_rank_entry *table, int n_entries,
                  int *status_out) {
    const wf_rank_entry *entry = NULL;
    wf_context *ctx;
    if (argc != N_WORDS || strcmp(argv[MARK_WORD], MARK) != 0) return 0;
    *status_out = 1;
    if (wf_context_create(NULL, &ctx) != WF_OK) return 1;
    for (int k = 0; k < n_entries && !entry; k++)
        if (table[k].name && !strcmp(table[k].name, argv[NAME_WORD])) entry = &table[k];
    *status_out = be_rank(ctx, entry, argv);
    wf_context_destroy(ctx);
    return 1;
}
