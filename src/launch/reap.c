/* A rank's last lines, and its end. */
#include "launch/crew.h"
#include "launch/descriptor.h"

#include <errno.h>
#include <sys/wait.h>

#define LAST_READS 32 /* more than a pipe holds; what has left the group could write for ever */

void wfi_rank_read(wfi_crew *crew, int rank, int stream, int64_t now_ms) {
    int *fd = &crew->ranks[rank].pipes[stream];
    bool is_open = true;
    wf_status status = wfi_merge_read(&crew->merge, rank, stream, *fd, now_ms, &is_open);
    if (status == WF_OK && !is_open) {
        wfi_descriptor_close(fd);
        status = wfi_merge_end(&crew->merge, rank, stream, now_ms);
    }
    if (status != WF_OK) wfi_crew_fail(crew, status);
}

void wfi_rank_drain(wfi_crew *crew, int rank, int64_t now_ms) {
    for (int stream = 0; stream < WFI_N_STREAMS; stream++)
        for (int i = 0; i < LAST_READS && crew->ranks[rank].pipes[stream] >= 0; i++)
            wfi_rank_read(crew, rank, stream, now_ms);
}

void wfi_rank_reap(wfi_crew *crew, int rank, int64_t now_ms) {
    wfi_rank_process *process = &crew->ranks[rank];
    /* Its number is the group's, and is not given away before it is reaped. */
    kill(-process->pid, SIGKILL);
    wfi_rank_drain(crew, rank, now_ms);
    for (int stream = 0; stream < WFI_N_STREAMS; stream++) {
        wf_status status = wfi_merge_end(&crew->merge, rank, stream, now_ms);
        if (status != WF_OK) wfi_crew_fail(crew, status);
        wfi_descriptor_close(&process->pipes[stream]);
    }
    wfi_guard_forget(&crew->guard, process->pid);
    while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    wfi_descriptor_close(&process->pidfd);
    process->state = WFI_RANK_GONE;
}
