/* Finds OpenCL devices. */
#include "device/opencl.h"

#include <stdlib.h>

static wf_status check(wf_context *ctx, const wfi_device_unit *unit, const char *what,
                       cl_int error) {
    char text[64];
    return error ? wfi_fail(ctx, WF_DEVICE, "opencl: %s on %s: %s", what, unit->name,
                            wfi_opencl_error(error, text))
                 : WF_OK;
}

wf_status wfi_opencl_check(const wfi_device *device, const char *what, cl_int error) {
    return check(device->owner.ctx, wfi_device_unit_of(device), what, error);
}

static cl_int add_units(wfi_opencl_machine *all, cl_handle platform) {
    const wfi_opencl *cl = &all->cl;
    cl_handle devices[WFI_MOST_UNITS];
    cl_uint n = 0;
    int *n_units = &all->machine.n_units;
    cl_int error = cl->GetDeviceIDs(platform, UINT32_MAX, WFI_MOST_UNITS, devices, &n);
    for (cl_uint i = 0; i < n && !error && *n_units < WFI_MOST_UNITS; i++) {
        wfi_opencl_unit *own = &all->units[(*n_units)++];
        char *name = own->unit.name;
        own->device = devices[i];
        pthread_rwlock_init(&own->kernels_lock, NULL);
        (void)cl->GetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof own->unit.name - 1, name, NULL);
        (void)cl->GetDeviceInfo(devices[i], CL_DRIVER_VERSION, sizeof own->driver - 1, own->driver,
                                NULL);
    }
    return error;
}

/* `platform`: the last platform without a device, with its `error`; NULL: no platform. */
static wf_status fail_without_units(wf_context *ctx, const wfi_opencl *cl, cl_handle platform,
                                    cl_int error) {
    char name[128] = "", text[64];
    if (!platform)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "opencl: libOpenCL.so.1 is installed, but finds no driver; install that of "
                        "this machine's GPU, or package pocl-opencl-icd for its CPU");
    (void)cl->GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    "opencl: driver '%s' offers no device: %s; check its GPU, or, for PoCL, that "
                    "its cache folder can be written ($POCL_CACHE_DIR, $XDG_CACHE_HOME)",
                    name, wfi_opencl_error(error, text));
}

wf_status wfi_opencl_find_units(wf_context *ctx, wfi_machine *machine) {
    wfi_opencl_machine *all = (void *)machine;
    cl_handle platforms[16], silent = NULL;
    cl_uint n = 0;
    cl_int error = CL_SUCCESS;
    wfi_ranges_init(&all->ranges);
    WF_TRY(wfi_opencl_load(ctx, &all->cl));
    if (all->cl.GetPlatformIDs(WFI_COUNT(platforms), platforms, &n)) n = 0;
    for (cl_uint i = 0; i < n && i < WFI_COUNT(platforms); i++)
        if ((error = add_units(all, platforms[i]))) silent = platforms[i];
    return machine->n_units ? WF_OK : fail_without_units(ctx, &all->cl, silent, error);
}

void wfi_opencl_end(wfi_machine *machine) {
    wfi_ranges_release(&((wfi_opencl_machine *)(void *)machine)->ranges);
}

void wfi_opencl_close(wfi_device_unit *unit) {
    wfi_opencl_unit *own = (void *)unit;
    const wfi_opencl *cl = &((const wfi_opencl_machine *)(void *)unit->machine)->cl;
    free(own->widths.all);
    pthread_rwlock_destroy(&own->kernels_lock);
    if (wfi_device_unit_hangs(unit)) return;
    for (size_t i = 0; i < unit->programs.n; i++) cl->ReleaseProgram(unit->programs.all[i].handle);
    if (unit->host_queue) cl->ReleaseCommandQueue(unit->host_queue);
    if (own->context) cl->ReleaseContext(own->context);
}

wf_status wfi_opencl_open(wf_context *ctx, wfi_device_unit *unit) {
    wfi_opencl_unit *own = (void *)unit;
    const wfi_opencl *cl = &((const wfi_opencl_machine *)(void *)unit->machine)->cl;
    cl_int error = CL_SUCCESS;
    cl_ulong doubles = 0;
    (void)cl->GetDeviceInfo(own->device, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof doubles, &doubles,
                            NULL);
    if (!doubles)
        return wfi_fail(ctx, WF_UNSUPPORTED, "opencl: %s has no 64-bit numbers, which sums need",
                        unit->name);
    if (!own->context) own->context = cl->CreateContext(NULL, 1, &own->device, NULL, NULL, &error);
    WF_TRY(check(ctx, unit, "a context", error));
    unit->host_queue = cl->CreateCommandQueue(own->context, own->device, 0, &error);
    return check(ctx, unit, "a queue", error);
}

wf_status wfi_opencl_planner(wf_context *ctx, cl_handle *queue_out) {
    wfi_device_unit *first;
    WF_TRY(wfi_device_unit_find(ctx, &wfi_opencl_class, 0, &first));
    *queue_out = first->host_queue;
    return WF_OK;
}
