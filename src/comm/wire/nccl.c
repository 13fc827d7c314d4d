/* The wire between GPUs over NCCL. The thread of one stream makes all calls. The communicator is
 * non-blocking, so no call waits in the library: the thread polls, and if the job fails, a rank is
 * gone or the deadline passes, it aborts the communicator. NCCL moves bytes; it sums only for plans
 * with allreduce=engine. */
#include "comm/wire/nccl_library.h"

#include "base/library.h"
#include "comm/wire/device_wire.h"
#include "device/cuda.h"

#include <stdio.h>

/* How long to wait for others to leave: a rank that runs on may leave later or never. */
#define LEAVE_MS 5000

typedef enum activity { MEETS, MOVES, SUMS, LEAVES } activity;
static const char *const verbs[] = {"brought the others together with",
                                    "moved what others read of, or give to,",
                                    "summed what its replicas have with that of", "taken leave of"};

struct wfi_device_wire {
    wfi_control *job;
    wfi_device *device;
    wfi_stream_queue *stream;
    wfi_nccl nccl;
    wfi_wire_team team;
    ncclUniqueId id, team_id;
    /* Communicators of all ranks, of the team (if smaller), and of the latest group. NULL: none, or
     * destroyed. */
    ncclComm_t comm, team_comm, now;
    activity does;
    bool is_open; /* a group is open */
};

static wf_status load(wf_context *ctx, wfi_nccl *nccl_out) {
#define SYMBOL(name, result, parameters) "nccl" #name,
    static const char *const files[] = {"libnccl.so.2", NULL};
    static const char *const symbols[] = {WFI_NCCL_LIST(SYMBOL) NULL};
    static const wfi_library library = {
        "nccl", files, symbols, "install NCCL (package libnccl2 of NVIDIA's), or leave --wire out",
        "it is not NCCL 2.14 or newer"};
    int version = 0;
    WF_TRY(wfi_library_load(ctx, &library, nccl_out));
    if (nccl_out->GetVersion(&version) == ncclSuccess && version >= WFI_NCCL_OLDEST) return WF_OK;
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    "nccl: this is NCCL %d.%d, and weft needs 2.14 or newer; install a newer one, "
                    "or leave --wire out",
                    version / (version < 10000 ? 1000 : 10000),
                    version % (version < 10000 ? 1000 : 10000) / 100);
}

/* ---- waiting ---- */

/* Aborts the work under way and the communicators. */
static void end_comms(wfi_device_wire *w) {
    if (w->is_open) (void)w->nccl.GroupEnd(); /* in a group the end would only be queued */
    w->is_open = false;
    if (w->team_comm) w->nccl.CommAbort(w->team_comm);
    if (w->comm) w->nccl.CommAbort(w->comm);
    w->comm = w->team_comm = w->now = NULL;
}

/* If ranks cannot form a communicator, the user can fix the cause: UNSUPPORTED. */
static wf_status refuse(wfi_device_wire *w, ncclResult_t error) {
    const wfi_device_unit *unit = wfi_device_unit_of(w->device);
    wf_status status = wfi_fail(
        w->device->owner.ctx, w->does == MEETS ? WF_UNSUPPORTED : WF_DEVICE,
        "nccl: rank %d on GPU %d, %s: %s (%s)%s", w->device->owner.rank, unit->number, unit->name,
        w->nccl.GetErrorString(error), w->nccl.GetLastError(w->now),
        w->does == MEETS ? "; each rank needs its own GPU, and NCCL_DEBUG=WARN prints more" : "");
    end_comms(w);
    return status;
}

static wf_status find_gone(const wfi_device_wire *w) {
    const wfi_owner *owner = &w->device->owner;
    WF_TRY(wfi_owner_check(owner));
    for (int r = 0; r < wf_job_n_ranks(w->job); r++)
        if (r != owner->rank && wfi_control_is_lost(w->job, r)) {
            char lost[WFI_CONTROL_DEAD];
            wfi_control_describe_lost(w->job, r, lost);
            return wfi_fail(owner->ctx, WF_REMOTE, "%s while NCCL moved bytes", lost);
        }
    return WF_OK;
}

/* A rank that is stopped within NCCL blocks the others. */
static wf_status too_late(const wfi_device_wire *w, int64_t ms) {
    const wfi_owner *owner = &w->device->owner;
    char who[160] = "";
    for (int r = 0; r < wf_job_n_ranks(w->job) && !*who; r++) {
        const char *state = r == owner->rank ? "" : wfi_control_process_state(w->job, r);
        if (*state)
            snprintf(who, sizeof who, "; rank %d (process %lld) does not move%s", r,
                     (long long)wfi_control_pid_of(w->job, r), state);
    }
    return wfi_fail(owner->ctx, WF_TIMEOUT, "nccl: in %lld ms it has not %s rank %d%s%s",
                    (long long)ms, verbs[w->does], owner->rank,
                    *who ? "" : "; NCCL_DEBUG=WARN prints more", who);
}

/* Waits until NCCL has completed its call and the stream has completed the work that NCCL queued.
 */
static wf_status wait_for(wfi_device_wire *w, ncclResult_t error) {
    const wfi_cuda *driver = wfi_cuda_driver(w->device);
    wfi_device_wait wait = wfi_device_wait_begin(w->device);
    if (w->does == LEAVES) wait.deadline.timeout_ms = LEAVE_MS, wait.deadline.watch = NULL;
    wf_status status = WF_OK;
    for (bool is_late = false; !is_late; is_late = !wfi_device_wait_on(&wait)) {
        ncclResult_t asked = ncclSuccess;
        if (error == ncclInProgress) asked = w->nccl.CommGetAsyncError(w->now, &error);
        if (asked != ncclSuccess) error = asked;
        if (error != ncclSuccess && error != ncclInProgress) return refuse(w, error);
        if (error == ncclSuccess) {
            wfi_cuda_enum queued = driver->StreamQuery(wfi_cuda_stream(w->stream));
            if (queued != WFI_CUDA_NOT_READY)
                return wfi_cuda_check(w->device, "work queued by NCCL", queued);
            error = ncclInProgress; /* polled again: errors may still follow */
        }
        status = find_gone(w);
        if (status != WF_OK) break;
    }
    if (status == WF_OK) status = too_late(w, wait.deadline.timeout_ms);
    end_comms(w);
    return status;
}

/* ---- groups ---- */

wf_status wfi_device_wire_begin(wfi_device_wire *w) {
    ncclResult_t error = w->nccl.GroupStart();
    w->is_open = !error;
    w->does = MOVES; /* wfi_device_wire_sum sets SUMS */
    w->now = w->comm;
    return error ? refuse(w, error) : WF_OK;
}

wf_status wfi_device_wire_move(wfi_device_wire *w, int peer, bool sends, void *data, size_t bytes) {
    CUstream stream = wfi_cuda_stream(w->stream);
    ncclResult_t error = sends ? w->nccl.Send(data, bytes, ncclInt8, peer, w->comm, stream)
                               : w->nccl.Recv(data, bytes, ncclInt8, peer, w->comm, stream);
    return error && error != ncclInProgress ? refuse(w, error) : WF_OK;
}

wf_status wfi_device_wire_sum(wfi_device_wire *w, void *data, size_t n_elem) {
    w->does = SUMS;
    w->now = w->team_comm ? w->team_comm : w->comm;
    ncclResult_t error = w->nccl.AllReduce(data, data, n_elem, ncclFloat32, ncclSum, w->now,
                                           wfi_cuda_stream(w->stream));
    return error && error != ncclInProgress ? refuse(w, error) : WF_OK;
}

wf_status wfi_device_wire_end(wfi_device_wire *w) {
    w->is_open = false;
    return wait_for(w, w->nccl.GroupEnd());
}

/* ---- life ---- */

static wf_status join(wfi_device_wire *w, ncclComm_t *comm, int n, ncclUniqueId id, int rank) {
    wfi_nccl_config config = {sizeof config, WFI_NCCL_MAGIC, WFI_NCCL_OLDEST, 0};
    ncclResult_t error =
        w->nccl.CommInitRankConfig(comm, n, id, rank, (ncclConfig_t *)(void *)&config);
    w->now = *comm;
    return wait_for(w, error);
}

static wf_status join_all(void *self, void *argument) {
    wfi_device_wire *w = self;
    (void)argument;
    WF_TRY(join(w, &w->comm, wf_job_n_ranks(w->job), w->id, wf_job_rank(w->job)));
    return w->team.n > 1 ? join(w, &w->team_comm, w->team.n, w->team_id, w->team.own) : WF_OK;
}

/* Broadcasts an NCCL id, which rank 0 creates, for the rendezvous of ranks. */
static wf_status name_meeting(wfi_device_wire *w, ncclUniqueId *id) {
    if (!wf_job_rank(w->job) && w->nccl.GetUniqueId(id))
        return wfi_fail(w->device->owner.ctx, WF_DEVICE,
                        "nccl: it returns no id for the rendezvous of its ranks: %s",
                        w->nccl.GetLastError(NULL));
    return wfi_control_broadcast(w->job, "meet by NCCL", id, sizeof *id);
}

static wf_status open_wire(wfi_device_wire *w) {
    WF_TRY(load(w->device->owner.ctx, &w->nccl));
    WF_TRY(name_meeting(w, &w->id));
    for (int32_t k = 0; w->team.n > 1 && k < wf_job_n_ranks(w->job) / w->team.n; k++) {
        ncclUniqueId id;
        WF_TRY(name_meeting(w, &id));
        if (k == w->team.number) w->team_id = id;
    }
    WF_TRY(wfi_stream_push(w->stream, join_all, w, NULL));
    return wfi_event_wait(wfi_stream_record(w->stream));
}

wf_status wfi_device_wire_open(wfi_control *job, wfi_device *device, wfi_stream_queue *stream,
                               wfi_wire_team team, wfi_device_wire **wire_out) {
    wf_context *ctx = device->owner.ctx;
    if (device->kind != &wfi_device_cuda)
        return wfi_fail(
            ctx, WF_UNSUPPORTED,
            "the wire nccl is between CUDA GPUs, but rank %d is on a device of the kind "
            "%s: give --devices cuda:%d, or another --wire",
            device->owner.rank, device->kind->name, wf_job_n_ranks(job));
    wfi_device_wire *w = wfi_alloc(ctx, 1, sizeof *w, "a wire");
    if (!w) return WF_NO_MEMORY;
    *w = (wfi_device_wire){.job = job, .device = device, .stream = stream, .team = team};
    if (team.n == wf_job_n_ranks(job)) w->team.n = 1; /* the communicator of all ranks serves */
    *wire_out = w;                                    /* also on failure: the stream may use it */
    return open_wire(w);
}

static wf_status leave(void *self, void *argument) {
    wfi_device_wire *w = self;
    ncclComm_t *const comms[] = {&w->team_comm, &w->comm};
    (void)argument;
    w->does = LEAVES;
    for (int k = 0; k < 2; k++) {
        w->now = *comms[k];
        if (!w->now || wait_for(w, w->nccl.CommFinalize(w->now)) != WF_OK) continue;
        w->nccl.CommDestroy(w->now);
        *comms[k] = NULL;
    }
    return WF_OK;
}

void wfi_device_wire_leave(wfi_device_wire *w) {
    if (w) (void)wfi_stream_push(w->stream, leave, w, NULL);
}

void wfi_device_wire_close(wfi_device_wire *w) {
    if (!w) return;
    bool is_lost = wfi_device_unit_hangs(wfi_device_unit_of(w->device));
    if (w->comm && !is_lost && wfi_cuda_push(w->device) == WF_OK) {
        end_comms(w);
        wfi_cuda_pop(w->device);
    }
    wfi_free(w->device->owner.ctx, w);
}
