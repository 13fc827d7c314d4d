/* DataParallel by hand, as in PyTorch's tutorial on several GPUs:
 *
 *     def data_parallel(module, input, device_ids, output_device=None):
 *         ...
 *         replicas = nn.parallel.replicate(module, device_ids)
 *         inputs = nn.parallel.scatter(input, device_ids)
 *         replicas = replicas[:len(inputs)]
 *         outputs = nn.parallel.parallel_apply(replicas, inputs)
 *         return nn.parallel.gather(outputs, output_device)
 *
 * wf_data_parallel is this function; here are its parts.
 *
 *     build/examples/primitives
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

#define MAX_DEVICES 4
#define N_SAMPLES   5

static void block(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(20));
    wf_output(wf_linear(x, "block2", 20), "y");
}

static wf_status data_parallel(wf_module *module, const wf_array *input, const char *const *devices,
                               int n_devices, const char *output_device, wf_array **output_out) {
    wf_module *replicas[MAX_DEVICES];
    wf_array *inputs[MAX_DEVICES], *outputs[MAX_DEVICES];
    int n_inputs = 0, n_outputs = 0;
    if (n_devices == 0) return wf_module_apply(module, input, output_out);
    if (!output_device) output_device = devices[0];

    wf_status status = wf_module_replicate(module, devices, n_devices, replicas);
    if (status) return status;
    status = wf_array_scatter(input, devices, n_devices, inputs, &n_inputs);
    for (int i = 0; i < n_inputs; i++)
        printf("  %lld samples on %s\n", (long long)wf_array_shape(inputs[i]).dim[0],
               wf_array_device(inputs[i]));
    /* Fewer inputs than devices: the other replicas have nothing to do. */
    if (!status) status = wf_parallel_apply(replicas, inputs, n_inputs, outputs);
    if (!status) n_outputs = n_inputs;
    if (!status) status = wf_array_gather(outputs, n_outputs, output_device, output_out);

    for (int i = 0; i < n_devices; i++) wf_module_destroy(replicas[i]);
    for (int i = 0; i < n_inputs; i++) wf_array_destroy(inputs[i]);
    for (int i = 0; i < n_outputs; i++) wf_array_destroy(outputs[i]);
    return status;
}

static int same(const wf_array *a, const wf_array *b) {
    float in_a[N_SAMPLES * 20], in_b[N_SAMPLES * 20];
    return !wf_array_read(a, in_a, sizeof in_a) && !wf_array_read(b, in_b, sizeof in_b) &&
           !memcmp(in_a, in_b, sizeof in_a);
}

int main(void) {
    static const char *const devices[] = {"cpu:0", "cpu:1", "cpu:2", "cpu:3"};
    float numbers[N_SAMPLES * 20];
    wf_context *ctx;
    wf_model *model = NULL;
    wf_module *module = NULL;
    wf_array *input = NULL, *whole = NULL;
    if (wf_context_create(NULL, &ctx)) return 1;
    for (int i = 0; i < N_SAMPLES * 20; i++) numbers[i] = (float)(i % 13) / 13 - 0.5f;
    wf_status status = wf_model_create(ctx, "block", block, NULL, 0, &model);
    if (!status) status = wf_module_create(ctx, model, NULL, &module);
    if (!status)
        status = wf_array_create(ctx, WF_F32, &WF_SHAPE(N_SAMPLES, 20), "cpu:0", numbers, &input);
    if (!status) status = wf_module_apply(module, input, &whole);
    for (int n = 0; n <= MAX_DEVICES && !status; n = n ? 2 * n : 1) {
        wf_array *output = NULL;
        printf("%d devices:\n", n);
        status = data_parallel(module, input, devices, n, n == 3 ? "cpu:1" : NULL, &output);
        if (!status)
            printf("  output on %s, %s\n", wf_array_device(output),
                   same(output, whole) ? "the bits of module(input)" : "OTHER BITS");
        wf_array_destroy(output);
    }
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_array_destroy(whole);
    wf_array_destroy(input);
    wf_module_destroy(module);
    wf_model_destroy(model);
    wf_context_destroy(ctx);
    return status != WF_OK;
}
