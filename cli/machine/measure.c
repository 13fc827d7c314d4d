#include "machine/measure.h"
#include "common/processor.h"
#include "common/speed.h"
#include "common/text.h"
#include "job/progress.h"
#include "job/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define N_ROUNDS   5
#define ROWS       512 /* of a product, which has as many columns */
#define LONG_K     1024
#define SHORT_K    8 /* longer ones already reach the full rate */
#define DISK_BYTES (16 * SPEED_DISK_CHUNK)

/* ---- products of matrices ---- */

static void product(wf_graph *g, const void *config) {
    int64_t k = *(const int64_t *)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(k));
    wf_tensor y = wf_input(g, "y", WF_F32, WF_SHAPE(ROWS));
    wf_loss(wf_mse(wf_linear(x, "product", ROWS), y));
}

/* CPU time of the op that computes most in one forward run. */
static double product_us(wf_trainer *t) {
    wf_profile_row row, most = {0};
    for (int i = 0; wf_trainer_profile(t, i, &row); i++)
        if (row.flops > most.flops) most = row;
    return most.n_calls ? (double)most.time_ns / 1e3 / (double)most.n_calls : (double)NAN;
}

static wf_status run_product(wf_trainer *t, int64_t k, double *us_out) {
    size_t x_bytes = (size_t)(ROWS * k) * sizeof(float), y_bytes = ROWS * ROWS * sizeof(float);
    wf_feed feeds[] = {{"x", calloc(1, x_bytes), x_bytes}, {"y", calloc(1, y_bytes), y_bytes}};
    wf_status status = feeds[0].data && feeds[1].data ? WF_OK : WF_NO_MEMORY;
    wf_step_result ignored;
    *us_out = INFINITY;
    for (int n = 0; n <= N_ROUNDS && status == WF_OK; n++) {
        wf_trainer_profile_reset(t);
        status = wf_trainer_eval(t, feeds, 2, ROWS, &ignored);
        if (n) *us_out = fmin(*us_out, product_us(t)); /* the first run fills caches */
    }
    free((void *)(uintptr_t)feeds[0].data);
    free((void *)(uintptr_t)feeds[1].data);
    return status;
}

/* The least time of a product of ROWS x k and k x ROWS on one core. */
static wf_status time_product(const cli *c, wf_dtype dtype, int64_t k, double *us_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = c->o.recipe; /* the defaults */
    wf_trainer *trainer = NULL;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    recipe.batch = ROWS;
    recipe.n_micro = recipe.n_lanes = recipe.n_threads = 1;
    recipe.dtype = dtype;
    config.profile = config.forward_only = 1;
    wf_status status = wf_model_create(c->ctx, "product", product, &k, sizeof k, &model);
    if (status == WF_OK) status = wf_plan_parse(c->ctx, "", &plan);
    if (status == WF_OK)
        status = wf_trainer_create(c->ctx, model, &recipe, plan, &config, &trainer);
    if (status == WF_OK) status = run_product(trainer, k, us_out);
    wf_trainer_destroy(trainer);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    return status;
}

/* A product takes 2 m n (k + half_k) / flops seconds (src/cluster/cost.c); two k give both. */
typedef struct product_speed {
    double flops, half_k;
} product_speed;

static wf_status measure_products(const cli *c, wf_dtype dtype, product_speed *speed_out) {
    double long_us, short_us = 0, area = 2.0 * ROWS * ROWS;
    TRY(time_product(c, dtype, LONG_K, &long_us));
    TRY(time_product(c, dtype, SHORT_K, &short_us));
    double least = area * LONG_K / long_us; /* of the rate reached */
    double flops_per_us = fmax(least, area * (LONG_K - SHORT_K) / fmax(1e-3, long_us - short_us));
    *speed_out =
        (product_speed){1e6 * flops_per_us, fmax(0, long_us * flops_per_us / area - LONG_K)};
    return WF_OK;
}

/* ---- the file ---- */

typedef struct measured {
    product_speed f32, bf16;
    memory_speed memory;
    double disk_bytes, disk_ms;
} measured;

/* The disk is that of the file. */
static exit_status measure_disk(const cli *c, measured *m) {
    char path[4096];
    struct statvfs about;
    snprintf(path, sizeof path, "%.4000s.%ld.disk", c->o.measure, (long)getpid());
    if (!speed_of_disk(path, DISK_BYTES, &m->disk_ms) || m->disk_ms <= 0)
        return complain(EXIT_FAILED, "--measure: the disk of %s cannot be measured: %s",
                        c->o.measure, strerror(errno));
    *strrchr(path, '.') = '\0';
    char *slash = strrchr(path, '/');
    if (slash) slash[1] = '\0';
    if (!statvfs(slash ? path : ".", &about))
        m->disk_bytes = (double)about.f_bavail * (double)about.f_frsize;
    return EXIT_DONE;
}

static exit_status measure_all(const cli *c, measured *m) {
    progress bar;
    progress_open(&bar, !c->o.quiet);
    progress_show(&bar, 0, "products of matrices");
    wf_status status = measure_products(c, WF_F32, &m->f32);
    if (status == WF_OK) status = measure_products(c, WF_BF16, &m->bf16);
    exit_status bad = complain_of(c, status);
    progress_show(&bar, 0.5, "memory");
    if (!bad && !speed_of_memory(&m->memory))
        bad = complain(EXIT_FAILED, "--measure: no memory or no thread for copies");
    progress_show(&bar, 0.8, "disk");
    if (!bad) bad = measure_disk(c, m);
    progress_clear(&bar);
    if (!bad && interrupt_status())
        bad = complain(interrupt_status(), "interrupted; no file has been written");
    return bad;
}

/* Cores share memory: here the copies of one core do not slow down those of another. */
static json_t *levels_of(const measured *m, int n_cores) {
    if (n_cores < 2) return json_array();
    return json_pack("[{s:s, s:s, s:i, s:f, s:f, s:b}]", "name", "machine", "of", "device", "count",
                     n_cores, "bandwidth", 1e6 / m->memory.link_us_per_byte, "latency_us",
                     m->memory.latency_us, "shared", 0);
}

/* A device is a core. CPUs do not multiply f16 here. */
static json_t *cluster_of(const measured *m, double memory_bytes, int n_cores) {
    char name[100], about[200];
    snprintf(about, sizeof about, "%.90s, measured by weft info --measure.", processor_name(name));
    name[47] = '\0';
    double copied = 1e6 / m->memory.memory_us_per_byte;
    return json_pack(
        "{s:s, s:s, s:{s:s, s:f, s:f, s:f, s:f, s:{s:f, s:f}, s:{s:f, s:f}}, s:o, s:{s:f, "
        "s:f}, s:{s:f, s:f}, s:{s:s, s:f}}",
        "name", "measured", "about", about, "device", "name", name, "memory_bytes",
        memory_bytes / n_cores, "memory_bandwidth", 2 * copied, "memory_efficiency", 1.0,
        "launch_us", m->memory.latency_us, "peak_flops", "f32", m->f32.flops, "bf16", m->bf16.flops,
        "product", "efficiency", 1.0, "half_k", m->f32.half_k, "levels", levels_of(m, n_cores),
        "host", "memory_bytes", memory_bytes, "bandwidth", copied, "disk", "bytes", m->disk_bytes,
        "bandwidth", 2e3 * (double)DISK_BYTES / m->disk_ms, "software", "name", "weft",
        "fused_attention", 0.0);
}

static void say_measured(const cli *c, const measured *m) {
    char copy[TEXT_BYTES], link[TEXT_BYTES], disk[TEXT_BYTES];
    say(c, "measured   a core: %.1f GFLOP/s in f32, %.1f in bf16; half as fast with k = %.1f\n",
        m->f32.flops / 1e9, m->bf16.flops / 1e9, m->f32.half_k);
    say(c, "           copies: memory %s/s, from another core %s/s and %.2f us; disk %s/s\n",
        text_of_bytes(copy, 1e6 / m->memory.memory_us_per_byte),
        text_of_bytes(link, 1e6 / m->memory.link_us_per_byte), m->memory.latency_us,
        text_of_bytes(disk, 2e3 * (double)DISK_BYTES / m->disk_ms));
}

exit_status measure_machine(const cli *c, double memory_bytes) {
    const wf_limits limits = wf_info_limits();
    measured m = {.disk_ms = 0};
    if (limits.memory_bytes) memory_bytes = fmin(memory_bytes, (double)limits.memory_bytes);
    if (!(memory_bytes > 0))
        return complain(EXIT_FAILED, "--measure: the system does not report its memory");
    TRY(measure_all(c, &m));
    json_t *file = cluster_of(&m, memory_bytes, limits.n_cores);
    say_measured(c, &m);
    exit_status bad = report_put(c, file, "the cluster file", c->o.measure);
    json_decref(file);
    if (!bad) say(c, "%-10s %s\n", "saved", c->o.measure);
    return bad;
}
