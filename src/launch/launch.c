/* Starting ranks, and serving them until the last has gone. */
#include "base/env.h"
#include "comm/job/control.h"
#include "launch/descriptor.h"
#include "launch/process_group.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ASK_MS      20  /* how often ranks are asked where nothing wakes us */
#define MANY_WRITES 256 /* before other things are looked after */

/* ---- events ---- */

/* Entries for poll(): the launcher's own, then one for each rank's process and each of its streams.
 * poll() ignores negative descriptors. */
enum { SIGNALS, LINES, WATCHDOG, N_OWN };
#define N_OF_RANK (1 + WFI_N_STREAMS)

static int sooner(int timeout_ms, int64_t in_ms) {
    int ms = (int)wfi_max_i64(0, wfi_min_i64(in_ms, 1000000));
    return timeout_ms < 0 || ms < timeout_ms ? ms : timeout_ms;
}

/* Returns how long to wait; -1: until an event. */
static int gather(const wfi_process_group *group, int64_t next_ms, int64_t now_ms,
                  struct pollfd *fds) {
    int64_t due_ms = wfi_merge_due_ms(&group->merge, now_ms);
    int lines = due_ms == 0 ? wfi_merge_fd(&group->merge) : -1, timeout_ms = -1;
    if (next_ms < INT64_MAX) timeout_ms = sooner(timeout_ms, next_ms - now_ms);
    if (due_ms > 0) timeout_ms = sooner(timeout_ms, due_ms);
    fds[SIGNALS] = (struct pollfd){.fd = group->signal_fd, .events = POLLIN};
    fds[LINES] = (struct pollfd){.fd = lines, .events = POLLOUT};
    fds[WATCHDOG] =
        (struct pollfd){.fd = group->is_stopping ? -1 : group->watchdog.pidfd, .events = POLLIN};
    for (int rank = 0; rank < group->n_ranks; rank++) {
        const wfi_rank_process *process = &group->ranks[rank];
        struct pollfd *own = &fds[N_OWN + rank * N_OF_RANK];
        bool runs = process->state == WFI_RANK_RUNS;
        *own++ = (struct pollfd){.fd = runs ? process->pidfd : -1, .events = POLLIN};
        if (runs && process->pidfd < 0) timeout_ms = sooner(timeout_ms, ASK_MS);
        for (int stream = 0; stream < WFI_N_STREAMS; stream++) {
            int fd = wfi_merge_is_full(&group->merge) ? -1 : process->pipes[stream];
            *own++ = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
    return timeout_ms;
}

/* ---- reactions to events ---- */

/* The lines have no reader any more: ranks find their own ends of the pipes broken, as without a
 * launcher. */
static void close_stream(wfi_process_group *group) {
    for (int stream = 0; stream < WFI_N_STREAMS; stream++)
        for (int rank = 0; rank < group->n_ranks && group->merge.errors[stream]; rank++)
            wfi_descriptor_close(&group->ranks[rank].pipes[stream]);
}

static void write_lines(wfi_process_group *group, int64_t now_ms) {
    for (int i = 0; i < MANY_WRITES && wfi_merge_due_ms(&group->merge, now_ms) == 0; i++) {
        struct pollfd to = {.fd = wfi_merge_fd(&group->merge), .events = POLLOUT};
        if (poll(&to, 1, 0) <= 0) return;
        wf_status status = wfi_merge_write(&group->merge);
        if (status == WF_IO) close_stream(group);
        if (status != WF_OK && status != WF_IO) wfi_process_group_fail(group, status);
    }
}

/* If the watchdog is lost, processes that ranks have started could survive the launcher: so all
 * ranks stop. */
static void look_after_watchdog(wfi_process_group *group) {
    if (group->is_stopping || !wfi_watchdog_is_lost(&group->watchdog)) return;
    wf_status status =
        wfi_fail(group->ctx, WF_REMOTE,
                 "launch: the watchdog (process %d) of rank 0 to rank %d was killed, so "
                 "all ranks were stopped",
                 (int)group->watchdog.pid, group->n_ranks - 1);
    wfi_process_group_fail(group, status);
}

/* The loop looks for ended ranks before it reads lines, so that the lines of a failed rank go
 * first. poll() fails where RLIMIT_NOFILE allows fewer entries: then all are looked at, now and
 * then. */
static void serve(wfi_process_group *group, struct pollfd *fds) {
    const struct pollfd *of_ranks = fds + N_OWN;
    while (wfi_process_group_is_alive(group) || group->merge.first) {
        int64_t now_ms = wfi_now_ms(), next_ms = wfi_process_group_keep_time(group, now_ms);
        int timeout_ms = gather(group, next_ms, now_ms, fds);
        if (!wfi_process_group_is_alive(group) && !group->merge.first) break;
        int n_ready = poll(fds, (nfds_t)(N_OWN + group->n_ranks * N_OF_RANK), timeout_ms);
        if (n_ready < 0) (void)poll(NULL, 0, ASK_MS);
        now_ms = wfi_now_ms();
        for (int rank = 0; rank < group->n_ranks; rank++) {
            const struct pollfd *own = &of_ranks[rank * N_OF_RANK];
            if (own->fd < 0 || n_ready < 0 || own->revents)
                wfi_process_group_look(group, rank, now_ms);
        }
        for (int i = 0; i < group->n_ranks * N_OF_RANK; i++)
            if (i % N_OF_RANK && of_ranks[i].fd >= 0 && (n_ready < 0 || of_ranks[i].revents))
                wfi_rank_read(group, i / N_OF_RANK, i % N_OF_RANK - 1, now_ms);
        wfi_signals_handle(group);
        look_after_watchdog(group);
        write_lines(group, now_ms);
        wfi_merge_draw(&group->merge);
    }
}

/* ---- before and after ---- */

static wf_status check(wf_context *ctx, const wf_launch_config *config) {
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_launch_config"));
    if (config->n_ranks < 1 || config->n_ranks > WF_LAUNCH_MAX_RANKS)
        return wfi_fail(ctx, WF_INVALID_ARG, "launch: %d ranks; there can be 1 to %d",
                        config->n_ranks, WF_LAUNCH_MAX_RANKS);
    if (!config->argv || !config->argv[0] || !*config->argv[0])
        return wfi_fail(ctx, WF_INVALID_ARG, "launch: no program is named");
    if (config->timeout_ms < 0 || config->grace_ms < 0 || config->timeout_ms > INT64_MAX / 4 ||
        config->grace_ms > INT64_MAX / 4)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "launch: a timeout of %lld ms, a grace of %lld ms; they begin at 0",
                        (long long)config->timeout_ms, (long long)config->grace_ms);
    for (int i = 0; i < 2; i++) {
        int fd = i ? config->err : config->out;
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
            return wfi_fail(ctx, WF_IO,
                            "launch: the ranks' output cannot be written: standard %s (descriptor "
                            "%d) is closed, or cannot be written",
                            i ? "error" : "output", fd);
    }
    return WF_OK;
}

static wf_status begin(wfi_process_group *group) {
    int segment_fd;
    group->running = wfi_wait_begin();
    group->oom_kills = wfi_oom_kills();
    WF_TRY(wfi_env_count(group->ctx, WFI_WEFT_TIMEOUT_MS, &group->stuck_ms));
    WF_TRY(wfi_signals_catch(group));
    WF_TRY(wfi_control_segment(group->ctx, group->n_ranks, &segment_fd));
    WF_TRY(wfi_descriptor_high(group->ctx, segment_fd, "the job's segment", &group->segment_fd));
    if (group->config->replace) wfi_control_promise(group->segment_fd);
    WF_TRY(wfi_watchdog_start(group->ctx, &group->watchdog));
    for (int rank = 0; rank < group->n_ranks && !group->is_stopping; rank++) {
        WF_TRY(wfi_rank_spawn(group, rank));
        wfi_signals_handle(group);
    }
    if (group->is_stopping) /* those that have been started may wait for the others */
        wfi_control_fail_segment(group->segment_fd,
                                 "the launch was interrupted before all ranks had joined");
    return WF_OK;
}

static void fill_result(wfi_process_group *group, wf_launch_result *result) {
    *result = (wf_launch_result){.failed_rank = group->failed_rank,
                                 .interrupted_by = group->interrupted_by,
                                 .stopped_by = group->stopped_by,
                                 .exit_status = group->late_status,
                                 .stop_ms = group->is_stopping ? wfi_wait_ms(&group->asked) : 0};
    for (int rank = 0; rank < group->n_ranks; rank++) {
        result->n_killed += group->ranks[rank].is_killed;
        if (group->config->lost) group->config->lost[rank] = group->ranks[rank].is_lost;
    }
    if (group->failed_rank >= 0) {
        result->exit_status = group->ranks[group->failed_rank].exit_status;
        result->signal = group->ranks[group->failed_rank].signal;
        wfi_say_failure(group, result->sentence, sizeof result->sentence);
    } else if (group->interrupted_by) {
        char killed[300];
        wfi_say_killed(group, killed, sizeof killed);
        snprintf(result->sentence, sizeof result->sentence,
                 *killed ? "interrupted by signal %d (%s); %s had to be killed"
                         : "interrupted by signal %d (%s); all ranks have ended%s",
                 group->interrupted_by, strsignal(group->interrupted_by), killed);
    }
}

/* From the first rank's start to the last one's end. */
static wf_status run(wfi_process_group *group, struct pollfd *fds, wf_launch_result *result_out,
                     wfi_failure *failure_out) {
    for (int rank = 0; rank < group->n_ranks; rank++)
        group->ranks[rank] = (wfi_rank_process){.pidfd = -1, .pipes = {-1, -1}};
    group->merge.is_terminal = isatty(group->config->err);
    wf_status status = begin(group);
    if (status != WF_OK) {
        wfi_process_group_fail(group, status);
        wfi_process_group_kill(group);
    }
    serve(group, fds);
    wfi_watchdog_end(&group->watchdog);
    if (failure_out && group->segment_fd >= 0) wfi_control_peek(group->segment_fd, failure_out);
    wfi_descriptor_close(&group->segment_fd);
    wfi_signals_restore(group);
    status = group->status;
    if (status == WF_OK && !group->interrupted_by) status = wfi_merge_check(&group->merge);
    fill_result(group, result_out);
    return status;
}

wf_status wf_launch(wf_context *ctx, const wf_launch_config *config, wf_launch_result *result_out) {
    return wfi_launch(ctx, config, result_out, NULL);
}

wf_status wfi_launch(wf_context *ctx, const wf_launch_config *config, wf_launch_result *result_out,
                     wfi_failure *failure_out) {
    *result_out = (wf_launch_result){.failed_rank = -1};
    WF_TRY(check(ctx, config));
    wfi_process_group *group = wfi_alloc(ctx, 1, sizeof *group, "a launch");
    if (!group) return WF_NO_MEMORY;
    *group = (wfi_process_group){.ctx = ctx,
                                 .config = config,
                                 .n_ranks = config->n_ranks,
                                 .segment_fd = -1,
                                 .signal_fd = -1,
                                 .failed_rank = -1,
                                 .lost_rank = -1};
    size_t n_ranks = (size_t)group->n_ranks;
    group->ranks = wfi_alloc(ctx, n_ranks, sizeof *group->ranks, "a launch");
    wf_status status = wfi_merge_init(&group->merge, ctx, group->n_ranks, config->out, config->err);
    struct pollfd *fds = wfi_alloc(ctx, N_OWN + n_ranks * N_OF_RANK, sizeof *fds, "a launch");
    if (status == WF_OK && (!group->ranks || !fds)) status = WF_NO_MEMORY;
    if (status == WF_OK) status = run(group, fds, result_out, failure_out);
    wfi_free(ctx, fds);
    wfi_merge_release(&group->merge);
    wfi_free(ctx, group->ranks);
    wfi_free(ctx, group);
    return status;
}
