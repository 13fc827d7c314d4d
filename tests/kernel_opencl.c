/* Kernels of OpenCL devices against the plain C ones; a device that hangs. Compiling them takes
 * most of the time. kernel_cuda compares the same text of each kernel, and opencl_train compares
 * training with the CPU's, so here only long attention, updates and copies remain; WEFT_TEST_FULL=1
 * runs every op, also in BF16 and with copies for CLBlast.
 *
 * label: once long
 */
#include "device/opencl.h"
#include "kernel_gpu.h"

#include <dlfcn.h>
#include <sched.h>

static cl_handle marker;
static int n_given_back;

static cl_int is_never_complete(cl_handle event, cl_uint name, size_t bytes, void *status,
                                size_t *bytes_out) {
    marker = event;
    *(cl_int *)status = 1; /* CL_RUNNING */
    return CL_SUCCESS;
}

static cl_int is_given_back(cl_handle handle) {
    n_given_back++;
    return CL_SUCCESS;
}

static wf_status launch_nothing(void *self, void *argument) {
    return WF_OK;
}

/* The task ends in time with a sentence; what the library might wait for is not given back. */
TEST_CASE(a_device_hangs) {
    scoped_context own = test_context();
    wfi_failure failed = {0};
    const wfi_owner owner = {.ctx = own, .timeout_ms = 400, .failure = &failed};
    wfi_device *d;
    wfi_stream_queue *s;
    TEST_OK(own, wfi_device_create(&owner, &wfi_device_opencl, 0, 1, &d));
    TEST_OK(own, wfi_stream_create(d, "compute", 0, NULL, &s));
    wfi_opencl_machine *all = wfi_opencl_machine_of(d);
    wfi_device_unit *unit = wfi_device_unit_of(d);
    wfi_opencl_queue *queue = s->queue;
    const wfi_opencl real = all->cl;
    const wfi_opencl_queue kept = *queue;
    all->cl.GetEventInfo = is_never_complete;
    TEST_OK(own, wfi_stream_push(s, launch_nothing, NULL, NULL));
    while (!wfi_stream_n_done(s)) sched_yield();
    TEST_REFUSED(own, wfi_event_wait(wfi_stream_record(s)), WF_TIMEOUT,
                 "hangs: in 300 ms it has not completed the work of compute of rank 0");
    all->cl.ReleaseMemObject = all->cl.ReleaseCommandQueue = is_given_back;
    wfi_stream_destroy(s);
    wfi_device_destroy(d);
    assert_int_equal(n_given_back, 0);
    all->cl = real;
    unit->hangs = 0;
    real.ReleaseEvent(marker);
    real.ReleaseMemObject(kept.words);
    real.ReleaseCommandQueue(kept.queue.handle);
}

/* From now on CLBlast multiplies copies of all matrices, as it does with large ones; false: there
 * is no CLBlast. */
static bool copy_all(void) {
    const char *const name = "XGEMM_MIN_INDIRECT_SIZE";
    const size_t value = 0;
    const int single = 32;
    int (*override)(cl_handle, const char *, int, size_t, const char *const *, const size_t *);
    void *library = dlopen("libclblast.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "CLBlastOverrideParameters") : NULL;
    if (!symbol) return false;
    memcpy(&override, &symbol, sizeof symbol);
    wf_context *own = test_context();
    const wfi_owner owner = {.ctx = own};
    wfi_device *d;
    TEST_OK(own, wfi_device_create(&owner, &wfi_device_opencl, 0, 1, &d));
    int error = override(wfi_opencl_unit_of(d)->device, "GemmRoutine", single, 1, &name, &value);
    wfi_device_destroy(d);
    test_context_end(own);
    return !error;
}

int main(void) {
    skips_nodes = !test_is_full();
    int status = check_kernels(&wfi_backend_opencl, WF_BUG, "in no device's memory");
    if (status == SKIPPED) return status;
    if (test_is_full() && copy_all())
        status += check_kernels(&wfi_backend_opencl, WF_BUG, "in no device's memory");
    return test_run(NULL, NULL) + status;
}
