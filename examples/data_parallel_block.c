/* One block of a model over several devices, as in PyTorch's tutorial on several GPUs:
 *
 *     self.block1 = nn.Linear(10, 20)
 *     self.block2 = nn.DataParallel(nn.Linear(20, 20))
 *     self.block3 = nn.Linear(20, 20)
 *
 * and, as there, the same program without any device.
 *
 *     build/examples/data_parallel_block
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

#define N_SAMPLES 30

typedef struct block_config {
    const char *name;
    int64_t n_in, n_out;
} block_config;

static void block(wf_graph *g, const void *config) {
    const block_config *c = config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(c->n_in));
    wf_output(wf_linear(x, c->name, c->n_out), "y");
}

static wf_status make_block(wf_context *ctx, const block_config *config, wf_module **module_out) {
    wf_model *model;
    wf_status status = wf_model_create(ctx, config->name, block, config, sizeof *config, &model);
    if (status) return status;
    status = wf_module_create(ctx, model, NULL, module_out);
    wf_model_destroy(model);
    return status;
}

/* x = block1(x); x = block2(x), over the devices; x = block3(x) */
static wf_status forward(wf_module *const blocks[3], const wf_array *x, const char *const *devices,
                         int n_devices, wf_array **y_out) {
    wf_array *h1 = NULL, *h2 = NULL;
    wf_status status = wf_module_apply(blocks[0], x, &h1);
    if (!status) status = wf_data_parallel(blocks[1], h1, devices, n_devices, "cpu:0", &h2);
    if (!status) status = wf_module_apply(blocks[2], h2, y_out);
    wf_array_destroy(h1);
    wf_array_destroy(h2);
    return status;
}

int main(void) {
    static const block_config configs[] = {
        {"block1", 10, 20}, {"block2", 20, 20}, {"block3", 20, 20}};
    static const char *const devices[] = {"cpu:0", "cpu:1", "cpu:2"};
    float numbers[N_SAMPLES * 10], y[N_SAMPLES * 20], first[N_SAMPLES * 20];
    wf_module *blocks[3] = {NULL, NULL, NULL};
    wf_array *x = NULL;
    wf_context *ctx;
    wf_status status = WF_OK;
    if (wf_context_create(NULL, &ctx)) return 1;
    for (int i = 0; i < N_SAMPLES * 10; i++) numbers[i] = (float)(i % 11) / 11 - 0.5f;
    for (int b = 0; b < 3 && !status; b++) status = make_block(ctx, &configs[b], &blocks[b]);
    if (!status)
        status = wf_array_create(ctx, WF_F32, &WF_SHAPE(N_SAMPLES, 10), "cpu:0", numbers, &x);
    for (int n = 0; n <= 3 && !status; n++) {
        wf_array *output;
        status = forward(blocks, x, devices, n, &output);
        if (status) break;
        status = wf_array_read(output, n ? y : first, sizeof y);
        wf_array_destroy(output);
        printf("block2 over %d devices: y begins with %.6f%s\n", n, (double)(n ? y : first)[0],
               !n                                ? ""
               : memcmp(y, first, sizeof y) == 0 ? ", the same bits"
                                                 : ", OTHER BITS");
    }
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_array_destroy(x);
    for (int b = 0; b < 3; b++) wf_module_destroy(blocks[b]);
    wf_context_destroy(ctx);
    return status != WF_OK;
}
