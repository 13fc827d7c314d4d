/* A rank's last lines, and its end. */
#include "launch/descriptor.h"
#include "launch/process_group.h"

#include <errno.h>
#include <sys/wait.h>
#include <time.h>

#define LAST_READS 32 /* more than a pipe holds; processes outside the group may write for ever */

void wfi_rank_read(wfi_process_group *group, int rank, int stream, int64_t now_ms) {
    int *fd = &group->ranks[rank].pipes[stream];
    bool is_open = true;
    wf_status status = wfi_merge_read(&group->merge, rank, stream, *fd, now_ms, &is_open);
    if (status == WF_OK && !is_open) {
        wfi_descriptor_close(fd);
        status = wfi_merge_end(&group->merge, rank, stream, now_ms);
    }
    if (status != WF_OK) wfi_process_group_fail(group, status);
}

void wfi_rank_drain(wfi_process_group *group, int rank, int64_t now_ms) {
    for (int stream = 0; stream < WFI_N_STREAMS; stream++)
        for (int i = 0; i < LAST_READS && group->ranks[rank].pipes[stream] >= 0; i++)
            wfi_rank_read(group, rank, stream, now_ms);
}

void wfi_rank_reap(wfi_process_group *group, int rank, int64_t now_ms) {
    wfi_rank_process *process = &group->ranks[rank];
    /* Its number is the group's, and is not given away before it is reaped. */
    kill(-process->pid, SIGKILL);
    wfi_rank_drain(group, rank, now_ms);
    for (int stream = 0; stream < WFI_N_STREAMS; stream++) {
        wf_status status = wfi_merge_end(&group->merge, rank, stream, now_ms);
        if (status != WF_OK) wfi_process_group_fail(group, status);
        wfi_descriptor_close(&process->pipes[stream]);
    }
    wfi_watchdog_forget(&group->watchdog, process->pid);
    while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    wfi_descriptor_close(&process->pidfd);
    process->state = WFI_RANK_GONE;
}

void wfi_process_end(pid_t pid) {
    wfi_wait_clock clock = wfi_wait_begin();
    const struct timespec nap = {0, 1000000};
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, WNOHANG) == 0 && wfi_wait_ms(&clock) < WFI_END_MS)
        nanosleep(&nap, NULL);
}
