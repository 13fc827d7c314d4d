/* Error sentences for ranks that failed. */
#include "base/names.h"
#include "launch/process_group.h"

#include <stdio.h>
#include <string.h>

int64_t wfi_oom_kills(void) {
    char line[128];
    long long n = -1;
    FILE *file = fopen("/proc/vmstat", "re");
    while (file && n < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "oom_kill %lld", &n) != 1) n = -1;
    if (file) fclose(file);
    return n;
}

void wfi_say_end(const wfi_process_group *group, int rank, char *text, size_t bytes) {
    const wfi_rank_process *process = &group->ranks[rank];
    char end[160];
    if (!process->signal) {
        snprintf(end, sizeof end, "ended with exit status %d", process->exit_status);
    } else {
        const char *why = "";
        if (process->is_killed)
            why = " by the launcher: it did not stop in time";
        else if (process->signal == SIGKILL)
            why = wfi_oom_kills() > group->oom_kills
                      ? " while the kernel killed processes because memory ran out"
                      : ", not by the launcher: memory may have run out";
        snprintf(end, sizeof end, "was killed by signal %d (%s)%s", process->signal,
                 strsignal(process->signal), why);
    }
    snprintf(text, bytes, "rank %d (process %d) %s", rank, (int)process->pid, end);
}

void wfi_say_failure(const wfi_process_group *group, char *text, size_t bytes) {
    char end[300];
    wfi_say_end(group, group->failed_rank, end, sizeof end);
    snprintf(text, bytes, "%s%s", end,
             group->others_stopped ? "; the other ranks were stopped" : "");
}

static bool runs(const void *self, int rank) {
    return ((const wfi_process_group *)self)->ranks[rank].state == WFI_RANK_RUNS;
}

static bool was_killed(const void *self, int rank) {
    return ((const wfi_process_group *)self)->ranks[rank].is_killed;
}

void wfi_say_running(const wfi_process_group *group, char *text, size_t bytes) {
    wfi_name_ranks(group->n_ranks, runs, group, text, bytes);
}

void wfi_say_killed(const wfi_process_group *group, char *text, size_t bytes) {
    wfi_name_ranks(group->n_ranks, was_killed, group, text, bytes);
}
