/* Device memory is touched by kernels and copies, and by nothing else: while none of them runs, it
 * is closed to the process. So a backend whose memory the host cannot reach can be written.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "small_models.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* One kernel or copy at a time, of any rank. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const wf_trainer *closed;
enum { KERNEL, ADD, SQUARES, TOTAL_NORM, UPDATE, STATISTICS, STEP, COPY, FILL, N_KINDS };
static int n_calls[N_KINDS], n_astray;

static void protect(int how) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int r = 0; r < closed->n_workers; r++) {
        const wfi_worker *w = &closed->workers[r];
        assert_int_equal(
            mprotect(w->arenas->base, (w->arenas->bytes + page - 1) / page * page, how), 0);
    }
}

/* A call that does not get a stream of ours has gone astray; the host's copies get none. */
static bool is_step;
static void begin(int kind, const wfi_stream_queue *stream) {
    bool is_ours = false;
    pthread_mutex_lock(&lock);
    for (int r = 0; r < closed->n_workers; r++)
        for (int s = 0; s < WFI_N_STREAMS; s++) is_ours |= stream == closed->workers[r].streams[s];
    n_astray += is_step ? !is_ours : stream != NULL;
    n_calls[kind]++;
    protect(PROT_READ | PROT_WRITE);
}

static wf_status end(wf_status status) {
    protect(PROT_NONE);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- what opens it ---- */

static wf_status add(wfi_stream_queue *stream, float *sum, const float *summand, size_t n) {
    begin(ADD, stream);
    return end(wfi_backend_cpu.add(stream, sum, summand, n));
}

static wf_status squares(wfi_stream_queue *stream, const float *gradient, size_t n, double *out) {
    begin(SQUARES, stream);
    return end(wfi_backend_cpu.squares(stream, gradient, n, out));
}

static wf_status total_norm(wfi_stream_queue *stream, const wfi_squares *squares, int32_t n_units,
                            double *total_out, double *norm_out) {
    begin(TOTAL_NORM, stream);
    return end(wfi_backend_cpu.total_norm(stream, squares, n_units, total_out, norm_out));
}

static wf_status update(wfi_stream_queue *stream, const wfi_update_call *call) {
    begin(UPDATE, stream);
    return end(wfi_backend_cpu.update(stream, call));
}

static wf_status statistics(wfi_stream_queue *stream, const wfi_statistics_call *call) {
    begin(STATISTICS, stream);
    return end(wfi_backend_cpu.statistics(stream, call));
}

static wf_status collective_step(wfi_stream_queue *stream, const wfi_step_memory *memory,
                                 const wfi_reduce_part *part, const wfi_reduce_step *step) {
    begin(STEP, stream);
    return end(wfi_backend_cpu.collective_step(stream, memory, part, step));
}

static wf_status copy(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space to_space,
                      const void *from, wfi_space from_space, size_t bytes) {
    begin(COPY, stream);
    return end(wfi_device_cpu.copy(device, stream, to, to_space, from, from_space, bytes));
}

static wf_status fill(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space space,
                      int byte, size_t bytes) {
    begin(FILL, stream);
    return end(wfi_device_cpu.fill(device, stream, to, space, byte, bytes));
}

typedef struct opening {
    wfi_kernel_impl impl; /* first: found from the kernel */
    const wfi_kernel_impl *sound;
} opening;

static wf_status run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                     void *scratch, const wfi_step_args *step) {
    const opening *o = (const opening *)(const void *)kernel->impl;
    begin(KERNEL, stream);
    return end(o->sound->run(kernel, stream, operands, scratch, step));
}

/* ---- a trainer of those ---- */

/* Of each implementation one that opens the memory. */
static void open_for(wfi_kernel *kernel, opening *openings, int n) {
    for (int k = 0; k < n && kernel; k++) {
        opening *o = &openings[k];
        if (kernel->impl == &o->impl) return;
        if (o->sound && o->sound != kernel->impl) continue;
        o->sound = kernel->impl;
        o->impl = *kernel->impl;
        o->impl.run = run;
        kernel->impl = &o->impl;
        return;
    }
    assert_null(kernel);
}

static void open_segment(const wfi_segment *segment, opening *openings, int n) {
    for (int32_t s = 0; segment && s < segment->n_steps; s++) {
        open_for(segment->steps[s].kernel, openings, n);
        open_for(segment->steps[s].kernel_add, openings, n);
    }
}

TEST(touched_by_kernels_and_copies) {
    static const char *const plans[] = {"", "dp=2", "dataparallel=2", "dp=2,pp=2"};
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        wf_recipe recipe =
            SMALL_RECIPE(.n_micro = 4, .n_lanes = 4, .n_threads = 1, .clip_norm = 0.01);
        opening openings[8] = {{.sound = NULL}};
        char hex[65], want[65], path[] = "/tmp/weft-backend-XXXXXX";
        float weights[160];
        wfi_device_class kind = wfi_device_cpu;
        wfi_backend backend = wfi_backend_cpu;
        scoped_trainer t = planned_trainer(ctx, small_net, &recipe, plans[k], NULL, 0);
        scoped_trainer like = planned_trainer(ctx, small_net, &recipe, "", NULL, 0);
        const wfi_executor *e = t->ready[0]->executor;
        kind.copy = copy;
        kind.fill = fill;
        backend.add = add;
        backend.squares = squares;
        backend.total_norm = total_norm;
        backend.update = update;
        backend.statistics = statistics;
        backend.collective_step = collective_step;
        for (int r = 0; r < t->n_workers; r++) {
            const wfi_code *code = wfi_executor_code(e, r, 0);
            t->workers[r].device->kind = &kind;
            t->workers[r].backend = &backend;
            for (int32_t u = 0; u < e->p->graph->n_units; u++)
                for (int part = 0; part < WFI_N_PARTS; part++) {
                    open_segment(code->units[u].part[part], openings, 8);
                    open_segment(code->units[u].pack[part], openings, 8);
                }
        }
        memset(n_calls, 0, sizeof n_calls);
        close(mkstemp(path));
        closed = t;
        protect(PROT_NONE);
        for (int s = 0; s < 2; s++) {
            is_step = true;
            double loss = small_step(ctx, t, s);
            is_step = false;
            assert_true(loss == small_step(ctx, like, s));
        }
        TEST_OK(ctx, wf_trainer_weights_sha256(t, hex));
        TEST_OK(ctx, wf_trainer_weights_sha256(like, want));
        assert_string_equal(hex, want);
        TEST_OK(ctx, wf_trainer_save_state(like, path, NULL, 0));
        TEST_OK(ctx, wf_trainer_load_state(t, path));
        TEST_OK(ctx, wf_trainer_save_state(t, path, NULL, 0));
        TEST_OK(ctx, wf_trainer_read(t, "fc.weight", weights, sizeof weights));
        unlink(path);
        protect(PROT_READ | PROT_WRITE);
        assert_int_equal(n_astray, 0);
        for (int c = 0; c < N_KINDS; c++)
            if (!n_calls[c] && (c != STEP || t->n_workers > 1))
                fail_msg("plan '%s': no call of kind %d", plans[k], c);
        for (int r = 0; r < t->n_workers; r++) t->workers[r].device->kind = &wfi_device_cpu;
    }
}
