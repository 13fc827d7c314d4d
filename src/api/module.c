/* A module: a trainer of one rank that runs forward only, applied to arrays in pieces of one size.
 * So the outputs of a sample do not depend on the other samples of the batch. */
#include "api/module.h"

#include <stdio.h>
#include <string.h>

static wf_status find_output(const wf_graph *g, const char *name, int32_t *value_out) {
    int32_t n_found = 0;
    for (int32_t k = 0; k < g->n_outputs; k++)
        if (!name || !strcmp(g->values[g->outputs[k]].name, name)) {
            *value_out = g->outputs[k];
            n_found++;
        }
    if (n_found == 1) return WF_OK;
    if (name) return wfi_fail(g->ctx, WF_INVALID_ARG, "module: the model has no output '%s'", name);
    return wfi_fail(g->ctx, WF_INVALID_ARG,
                    n_found
                        ? "module: the model has %d outputs; wf_module_config.output selects one"
                        : "module: the model has %d outputs; wf_output names one",
                    n_found);
}

static wf_status find_input(const wf_graph *g, int32_t output, int32_t *value_out) {
    int32_t found = -1;
    for (int32_t v = 0; v < g->n_values; v++) {
        bool depends;
        if (g->values[v].kind != WFI_VALUE_INPUT) continue;
        WF_TRY(wfi_value_depends_on(g, output, v, &depends));
        if (!depends) continue;
        if (found >= 0)
            return wfi_fail(g->ctx, WF_INVALID_ARG,
                            "module: output '%s' depends on inputs '%s' and '%s'; a module takes "
                            "one",
                            g->values[output].name, g->values[found].name, g->values[v].name);
        found = v;
    }
    if (found < 0)
        return wfi_fail(g->ctx, WF_INVALID_ARG, "module: output '%s' depends on no input",
                        g->values[output].name);
    *value_out = found;
    return WF_OK;
}

static wf_status create_trainer(wf_module *m, const wf_model *model, const wfi_device_list *list) {
    wf_recipe recipe;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_plan *one;
    WF_TRY(wf_recipe_parse(m->ctx, "", &recipe)); /* smaller than another WF_RECIPE_INIT */
    recipe.batch = m->config.grain ? m->config.grain : 1;
    recipe.seed = m->config.seed;
    recipe.kernels = m->config.kernels;
    recipe.n_threads = m->config.n_threads;
    config.forward_only = 1;
    config.timeout_ms = m->config.timeout_ms;
    WF_TRY(wf_plan_parse(m->ctx, "", &one));
    wf_status status = wfi_trainer_create_on(m->ctx, model, &recipe, one, &config, list,
                                             WF_PROGRAM_FORWARD, &m->trainer);
    wf_plan_destroy(one);
    return status;
}

static wf_status fill(wf_module *m, const wf_model *model, const wfi_device_list *list) {
    snprintf(m->device, sizeof m->device, "%s:%d", wfi_device_kind_of(list, 0)->name,
             list->place[0]);
    WF_TRY(create_trainer(m, model, list));
    const wf_graph *g = wfi_trainer_graph(m->trainer);
    WF_TRY(find_output(g, m->config.output, &m->output));
    WF_TRY(find_input(g, m->output, &m->input));
    const wf_shape *shape = &g->values[m->output].shape;
    if (shape->n_dims && shape->dim[0] == g->batch) return WF_OK;
    char text[WFI_SHAPE_TEXT];
    return wfi_fail(m->ctx, WF_SHAPE,
                    "module: output '%s' of %lld samples is %s; its dim 0 has to be the samples",
                    g->values[m->output].name, (long long)g->batch, wfi_shape_text(shape, text));
}

wf_status wfi_module_create_on(wf_context *ctx, const wf_model *model,
                               const wf_module_config *config, const wfi_device_list *list,
                               wf_module **module_out) {
    wf_module *m = wfi_alloc(ctx, 1, sizeof *m, "a module");
    if (!m) return WF_NO_MEMORY;
    *m = (wf_module){.ctx = ctx, .config = *config};
    wf_status status = fill(m, model, list);
    if (status != WF_OK) {
        wf_module_destroy(m);
        return status;
    }
    *module_out = m;
    return WF_OK;
}

wf_status wf_module_create(wf_context *ctx, const wf_model *model, const wf_module_config *config,
                           wf_module **module_out) {
    const wf_module_config defaults = WF_MODULE_CONFIG_INIT;
    wfi_device_list list;
    if (!config) config = &defaults;
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_module_config"));
    if (config->grain < 0)
        return wfi_fail(ctx, WF_INVALID_ARG, "module: a grain of %lld samples",
                        (long long)config->grain);
    WF_TRY(
        wfi_device_named(ctx, config->device ? config->device : WFI_DEFAULT_DEVICE->name, &list));
    return wfi_module_create_on(ctx, model, config, &list, module_out);
}

void wf_module_destroy(wf_module *m) {
    if (!m) return;
    wf_trainer_destroy(m->trainer);
    wfi_free(m->ctx, m);
}

const char *wf_module_device(const wf_module *m) {
    return m->device;
}

wf_status wf_module_load_weights(wf_module *m, const char *path) {
    return wf_trainer_load_weights(m->trainer, path);
}

wf_status wf_module_read(wf_module *m, const char *name, void *dst, size_t dst_bytes) {
    return wf_trainer_read(m->trainer, name, dst, dst_bytes);
}

/* ---- applying it ---- */

static wf_status check_input(const wf_module *m, const wf_array *input) {
    const wf_graph *g = wfi_trainer_graph(m->trainer);
    const wfi_value *want = wfi_value_at(g, m->input);
    char one[WFI_SHAPE_TEXT], other[WFI_SHAPE_TEXT];
    wf_shape shape = want->shape;
    if (input->shape.n_dims > 0) shape.dim[0] = input->shape.dim[0];
    if (input->dtype != want->dtype || !wfi_shape_equal(&shape, &input->shape) ||
        input->shape.dim[0] < 1)
        return wfi_fail(
            m->ctx, WF_SHAPE,
            "module: input '%s' is %s %s, and %s %s was given; only dim 0, the samples, "
            "may be another",
            want->name, wf_dtype_name(want->dtype), wfi_shape_text(&want->shape, one),
            wf_dtype_name(input->dtype), wfi_shape_text(&input->shape, other));
    if (strcmp(input->device, m->device))
        return wfi_fail(m->ctx, WF_SHAPE,
                        "module: the input is on %s, the module on %s; wf_array_copy brings it "
                        "there",
                        input->device, m->device);
    return wfi_check_ids(m->trainer, m->trainer->ready[0], m->input, (const int32_t *)input->data,
                         input->shape.dim[0]);
}

/* Piece by piece, each of as many samples as the grain says. A recurrent model begins every piece
 * with zeros: otherwise a sample would go on from one of the piece before. */
static wf_status apply_pieces(wf_module *m, const wf_array *input, wf_array *output) {
    const wf_graph *g = wfi_trainer_graph(m->trainer);
    int64_t n = input->shape.dim[0], grain = m->config.grain ? m->config.grain : n;
    size_t in_bytes = wfi_array_row_bytes(input), out_bytes = wfi_array_row_bytes(output);
    for (int64_t first = 0; first < n; first += grain) {
        size_t at = (size_t)first, n_now = (size_t)wfi_min_i64(grain, n - first);
        wf_feed feed = {g->values[m->input].name, input->data + at * in_bytes, n_now * in_bytes};
        wf_trainer_reset_hidden(m->trainer, WF_PROGRAM_FORWARD);
        WF_TRY(wf_trainer_forward(m->trainer, &feed, 1, (int64_t)n_now, g->values[m->output].name,
                                  output->data + at * out_bytes, n_now * out_bytes));
    }
    return WF_OK;
}

wf_status wf_module_apply(wf_module *m, const wf_array *input, wf_array **output_out) {
    WF_TRY(check_input(m, input));
    const wfi_value *value = wfi_value_at(wfi_trainer_graph(m->trainer), m->output);
    wf_shape shape = value->shape;
    wf_array *output;
    shape.dim[0] = input->shape.dim[0];
    WF_TRY(wfi_array_new(m->ctx, value->dtype, &shape, m->device, &output));
    wf_status status = apply_pieces(m, input, output);
    if (status != WF_OK) {
        wf_array_destroy(output);
        return status;
    }
    *output_out = output;
    return WF_OK;
}
