/* Which OpenCL devices there are, and a rank's. */
#include "device/opencl.h"

#include <stdio.h>
#include <stdlib.h>

wf_status wfi_opencl_fail(wf_context *ctx, const wfi_opencl_unit *unit, const char *what,
                          cl_int error) {
    char text[64];
    return wfi_fail(ctx, WF_DEVICE, "opencl: %s on %s: %s", what, unit->name,
                    wfi_opencl_error(error, text));
}

static cl_int add_units(wfi_opencl_machine *all, cl_handle platform) {
    cl_handle devices[WFI_OPENCL_DEVICES];
    cl_uint n = 0;
    cl_int error = all->cl.GetDeviceIDs(platform, UINT32_MAX, WFI_OPENCL_DEVICES, devices, &n);
    if (error) return error;
    for (cl_uint i = 0; i < n && i < WFI_OPENCL_DEVICES && all->n_units < WFI_OPENCL_DEVICES; i++) {
        wfi_opencl_unit *unit = &all->units[all->n_units++];
        unit->device = devices[i];
        pthread_rwlock_init(&unit->beside, NULL);
        (void)all->cl.GetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof unit->name - 1, unit->name,
                                    NULL);
        (void)all->cl.GetDeviceInfo(devices[i], CL_DRIVER_VERSION, sizeof unit->driver - 1,
                                    unit->driver, NULL);
    }
    return CL_SUCCESS;
}

/* `platform`: the last of those that gave no device, with `error`; NULL: there is no platform. */
static wf_status fail_without_units(wf_context *ctx, const wfi_opencl *cl, cl_handle platform,
                                    cl_int error) {
    char name[128] = "", text[64];
    if (!platform)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "opencl: libOpenCL.so.1 is there, but knows no driver; install that of "
                        "this machine's GPU, or package pocl-opencl-icd for its CPU");
    (void)cl->GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    "opencl: driver '%s' gives no device: %s; see that its GPU is there, or, for "
                    "PoCL, that a folder for what it compiles can be written ($POCL_CACHE_DIR, "
                    "$XDG_CACHE_HOME)",
                    name, wfi_opencl_error(error, text));
}

static wf_status create_all(wf_context *ctx, void **shared_out) {
    cl_handle platforms[16], silent = NULL;
    cl_uint n = 0;
    cl_int error = CL_SUCCESS;
    wfi_opencl_machine *all = calloc(1, sizeof *all);
    if (!all) return wfi_no_memory(ctx, sizeof *all, "OpenCL's devices");
    wf_status status = wfi_opencl_load(ctx, &all->cl);
    if (status == WF_OK && all->cl.GetPlatformIDs(WFI_COUNT(platforms), platforms, &n)) n = 0;
    for (cl_uint i = 0; i < n && i < WFI_COUNT(platforms); i++)
        if ((error = add_units(all, platforms[i]))) silent = platforms[i];
    if (status == WF_OK && !all->n_units) status = fail_without_units(ctx, &all->cl, silent, error);
    if (status != WF_OK) {
        free(all);
        return status;
    }
    pthread_mutex_init(&all->lock, NULL);
    *shared_out = all;
    return WF_OK;
}

static void destroy_all(void *shared) {
    wfi_opencl_machine *all = shared;
    for (int i = 0; i < all->n_units; i++) {
        wfi_opencl_unit *unit = &all->units[i];
        bool hangs = wfi_opencl_hangs(unit);
        for (size_t k = 0; k < unit->programs.n && !hangs; k++)
            all->cl.ReleaseProgram(unit->programs.all[k].handle);
        free(unit->programs.all);
        free(unit->widths.all);
        pthread_rwlock_destroy(&unit->beside);
        if (hangs) continue;
        if (unit->host_queue) all->cl.ReleaseCommandQueue(unit->host_queue);
        if (unit->context) all->cl.ReleaseContext(unit->context);
    }
    pthread_mutex_destroy(&all->lock);
    free(all->ranges);
    free(all);
}

static const wfi_shared_kind shared_kind = {create_all, destroy_all};

wf_status wfi_opencl_describe(wf_context *ctx, char *text, size_t bytes) {
    void *shared;
    WF_TRY(wfi_context_share(ctx, &shared_kind, &shared));
    const wfi_opencl_machine *all = shared;
    int n = snprintf(text, bytes, "%d device%s:", all->n_units, all->n_units == 1 ? "" : "s");
    for (int i = 0; i < all->n_units && n >= 0 && (size_t)n < bytes; i++)
        n += snprintf(text + n, bytes - (size_t)n, "%s %d %s", i ? "," : "", i, all->units[i].name);
    return WF_OK;
}

/* ---- a rank's device ---- */

static wf_status open_unit(wf_context *ctx, wfi_opencl_machine *all, wfi_opencl_unit *unit) {
    cl_int error = CL_SUCCESS;
    cl_ulong doubles = 0;
    if (unit->host_queue) return WF_OK;
    (void)all->cl.GetDeviceInfo(unit->device, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof doubles, &doubles,
                                NULL);
    if (!doubles)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "opencl: %s has no numbers of 64 bits, in which sums are made", unit->name);
    unit->context = all->cl.CreateContext(NULL, 1, &unit->device, NULL, NULL, &error);
    if (!unit->context) return wfi_opencl_fail(ctx, unit, "a context", error);
    unit->host_queue = all->cl.CreateCommandQueue(unit->context, unit->device, 0, &error);
    return unit->host_queue ? WF_OK : wfi_opencl_fail(ctx, unit, "a queue", error);
}

/* The machine, and its unit of this place, which is opened. */
static wf_status find_unit(wf_context *ctx, int place, wfi_opencl_device *found) {
    void *shared;
    WF_TRY(wfi_context_share(ctx, &shared_kind, &shared));
    wfi_opencl_machine *all = shared;
    *found = (wfi_opencl_device){all, &all->units[place % all->n_units]};
    pthread_mutex_lock(&all->lock);
    wf_status status = open_unit(ctx, all, found->unit);
    pthread_mutex_unlock(&all->lock);
    return status;
}

wf_status wfi_opencl_planner(wf_context *ctx, cl_handle *queue_out) {
    wfi_opencl_device first;
    WF_TRY(find_unit(ctx, 0, &first));
    *queue_out = first.unit->host_queue;
    return WF_OK;
}

wf_status wfi_opencl_create(wfi_device *device) {
    wf_context *ctx = device->owner.ctx;
    wfi_opencl_device *own = wfi_alloc(ctx, 1, sizeof *own, "a device");
    if (!own) return WF_NO_MEMORY;
    wf_status status = find_unit(ctx, device->place, own);
    if (status != WF_OK) {
        wfi_free(ctx, own);
        return status;
    }
    device->state = own;
    wfi_log(ctx, WF_LOG_INFO, "device", "rank %d: OpenCL device %td of %d, %s", device->owner.rank,
            own->unit - own->all->units, own->all->n_units, own->unit->name);
    return WF_OK;
}

void wfi_opencl_destroy(wfi_device *device) {
    wfi_free(device->owner.ctx, device->state);
}

bool wfi_opencl_reaches(const wfi_device *device, const wfi_device *other) {
    return wfi_opencl_state(device)->unit == wfi_opencl_state(other)->unit;
}
