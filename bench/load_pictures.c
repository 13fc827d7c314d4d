/* load_pictures DIR N BATCH WORKERS [IMAGE]: N samples of a folder of pictures, as they are trained
 * on, go through a loader; prints the images, seconds and CPU seconds that it took, once they have
 * begun to come. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <weft/weft.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

int main(int argc, char **argv) {
    wf_context *ctx;
    wf_data *data;
    wf_loader *loader;
    wf_data_config config = WF_DATA_CONFIG_INIT;
    wf_loader_config loading = WF_LOADER_CONFIG_INIT;
    if (argc < 5) return fprintf(stderr, "usage: load_pictures DIR N BATCH WORKERS [IMAGE]\n"), 2;
    if (wf_context_create(NULL, &ctx)) return 1;
    config.name = argv[1];
    config.height = config.width = argc > 5 ? atoll(argv[5]) : 224;
    loading.batch = atoll(argv[3]);
    loading.n_workers = atoi(argv[4]);
    loading.augment = 1;
    double begin = seconds(), begin_cpu = cpu_seconds();
    long long n = 0, n_wanted = atoll(argv[2]);
    wf_status status = wf_data_open(ctx, &config, &data);
    if (!status) status = wf_loader_create(data, &loading, &loader);
    while (!status && n < n_wanted) {
        const wf_batch *batch;
        status = wf_loader_next(loader, &batch);
        if (!status) n += batch->n_samples;
    }
    if (status) return fprintf(stderr, "%s\n", wf_context_error(ctx)), 1;
    printf("{\"images\": %lld, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", n, seconds() - begin,
           cpu_seconds() - begin_cpu);
    wf_loader_destroy(loader);
    wf_data_close(data);
    wf_context_destroy(ctx);
    return 0;
}
