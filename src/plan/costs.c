#include "plan/costs.h"
#include "graph/op.h"

#include <math.h>
#include <string.h>

/* One core with AVX-512: rates of convolutions (Winograd's are counted as direct ones) and of
 * passes over memory. With these the units of a ResNet-50 come out within 10 % of measured times,
 * on a Zen 5. Computed costs serve to compare units and schedules, so the ratio of these matters
 * more than their size. */
#define FLOPS_PER_US 310e3
#define BYTES_PER_US 31e3
#define MESSAGE_US   20
/* An NVMe drive; as for other rates, bytes read and bytes written both count. */
#define DISK_BYTES_PER_US 2e3
/* Adding a weight's gradient to the accumulator: three passes, which miss the cache. */
#define ACCUMULATE_PASSES 6

static wf_status allocate(wf_context *ctx, int32_t n_units, wf_costs **costs_out) {
    wf_costs *costs = wfi_alloc(ctx, 1, sizeof *costs, "costs");
    if (!costs) return WF_NO_MEMORY;
    *costs = (wf_costs){.ctx = ctx, .n_units = n_units};
    costs->units = wfi_alloc(ctx, (size_t)n_units, sizeof *costs->units, "costs");
    if (!costs->units) {
        wf_costs_destroy(costs);
        return WF_NO_MEMORY;
    }
    *costs_out = costs;
    return WF_OK;
}

static wf_status name_unit(wf_costs *costs, int32_t u, const char *name) {
    costs->units[u].name = wfi_strdup(costs->ctx, name);
    return costs->units[u].name ? WF_OK : WF_NO_MEMORY;
}

wf_status wfi_costs_create(wf_context *ctx, const wf_graph *g, wf_costs **costs_out) {
    wf_costs *costs;
    WF_TRY(allocate(ctx, g->n_units, &costs));
    for (int32_t u = 0; u < g->n_units; u++)
        if (name_unit(costs, u, g->units[u].name) != WF_OK) {
            wf_costs_destroy(costs);
            return WF_NO_MEMORY;
        }
    costs->rates = (wf_rates){.message_us = MESSAGE_US,
                              .copy_us_per_byte = 1 / BYTES_PER_US,
                              .pack_us_per_byte = 1 / BYTES_PER_US,
                              .update_us_per_byte = 1 / BYTES_PER_US,
                              .sum_us_per_byte = 1 / BYTES_PER_US,
                              .tie_us_per_byte = 1 / BYTES_PER_US,
                              .reduce_us_per_byte = 1 / BYTES_PER_US,
                              .host_us_per_byte = 1 / BYTES_PER_US,
                              .disk_us_per_byte = 1 / DISK_BYTES_PER_US};
    *costs_out = costs;
    return WF_OK;
}

/* As long as its arithmetic, and as moving its operands through memory. */
static double node_us(const wf_graph *g, const wfi_node *node) {
    double bytes = 0, flops = node->op->flops ? node->op->flops(g, node) : 0;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] >= 0) bytes += (double)wfi_value_bytes(g, node->in[i]);
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] >= 0) bytes += (double)wfi_value_bytes(g, node->out[i]);
    return flops / FLOPS_PER_US + bytes / BYTES_PER_US;
}

wf_status wfi_costs_compute(const wf_graph *g, wf_costs **costs_out) {
    WF_TRY(wfi_costs_create(g->ctx, g, costs_out));
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead) continue;
        if (wfi_node_is_alias(g, node)) continue;
        wf_unit_cost *unit = &(*costs_out)->units[node->unit];
        double us = node_us(g, node);
        if (node->phase == WFI_F || node->phase == WFI_R) {
            *(node->phase == WFI_F ? &unit->forward_us : &unit->recompute_us) += us;
            continue;
        }
        *(node->phase == WFI_B ? &unit->backward_us : &unit->weight_us) += us;
        unit->backward_weight_us += us;
    }
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        wf_unit_cost *unit = &(*costs_out)->units[w->unit];
        double us = ACCUMULATE_PASSES * (double)wfi_value_bytes(g, w->param) / BYTES_PER_US;
        unit->weight_us += us;
        unit->backward_weight_us += us;
    }
    return WF_OK;
}

wf_status wfi_costs_copy(wf_context *ctx, const wf_costs *costs, wf_costs **copy_out) {
    wf_costs *copy;
    WF_TRY(allocate(ctx, costs->n_units, &copy));
    copy->rates = costs->rates;
    copy->is_measured = costs->is_measured;
    copy->shares_cores = costs->shares_cores;
    wf_status status = WF_OK;
    for (int32_t u = 0; u < costs->n_units && status == WF_OK; u++) {
        copy->units[u] = costs->units[u];
        status = name_unit(copy, u, costs->units[u].name);
    }
    if (status == WF_OK && costs->crowded)
        status = wfi_costs_copy(ctx, costs->crowded, &copy->crowded);
    if (status != WF_OK) {
        wf_costs_destroy(copy);
        return status;
    }
    *copy_out = copy;
    return WF_OK;
}

/* Units of rows are joined under one plan and apart under another (pass/join.c). */
static void divide_rows(const wf_graph *g, wf_costs *costs) {
    for (int32_t u = 0, n; u < g->n_units; u += n) {
        n = g->units[u].is_rows ? g->n_slices : 1;
        wf_unit_cost all = costs->units[u];
        for (int32_t k = 1; k < n; k++) {
            all.forward_us += costs->units[u + k].forward_us;
            all.backward_us += costs->units[u + k].backward_us;
            all.weight_us += costs->units[u + k].weight_us;
            all.backward_weight_us += costs->units[u + k].backward_weight_us;
            all.recompute_us += costs->units[u + k].recompute_us;
        }
        for (int32_t k = 0; k < n; k++) {
            double share = !wfi_is_joined(g, u) ? 1.0 / n : k == 0;
            wf_costs_set_unit(costs, u + k,
                              (wf_unit_cost){.forward_us = share * all.forward_us,
                                             .backward_us = share * all.backward_us,
                                             .weight_us = share * all.weight_us,
                                             .backward_weight_us = share * all.backward_weight_us,
                                             .recompute_us = share * all.recompute_us,
                                             .recompute_scale = all.recompute_scale});
        }
    }
}

wf_status wfi_costs_suit(wf_context *ctx, const wf_costs *costs, const wf_graph *g,
                         wf_costs **suited_out) {
    bool same = costs->n_units == g->n_units;
    for (int32_t u = 0; u < g->n_units && same; u++)
        same = !strcmp(costs->units[u].name, g->units[u].name);
    if (!same)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "the costs belong to a model with %d units, not to this model with %d",
                        costs->n_units, g->n_units);
    WF_TRY(wfi_costs_copy(ctx, costs, suited_out));
    for (wf_costs *each = *suited_out; each; each = each->crowded) divide_rows(g, each);
    return WF_OK;
}

/* Of the forward's time. */
static double scale_of(const wf_unit_cost *unit) {
    return unit->recompute_scale > 0 ? unit->recompute_scale : 1;
}

double wfi_costs_recompute(const wf_costs *costs, const wf_costs *of, int32_t unit) {
    const wf_unit_cost *own = &of->units[unit], *out = &costs->units[unit];
    double share = own->forward_us > 0 ? own->recompute_us / own->forward_us / scale_of(own) : 0;
    return share * out->forward_us * scale_of(out);
}

wf_status wfi_costs_complete(const wf_graph *g, wf_costs *costs) {
    wf_costs *computed;
    WF_TRY(wfi_costs_compute(g, &computed));
    for (int32_t u = 0; u < costs->n_units; u++) {
        wf_unit_cost *unit = &costs->units[u];
        const wf_unit_cost *model = &computed->units[u];
        double share =
            model->backward_weight_us > 0 ? model->weight_us / model->backward_weight_us : 0;
        if (isnan(unit->backward_us)) unit->backward_us = (1 - share) * unit->backward_weight_us;
        if (isnan(unit->weight_us)) unit->weight_us = share * unit->backward_weight_us;
        if (isnan(unit->backward_weight_us))
            unit->backward_weight_us = unit->backward_us + unit->weight_us;
        unit->recompute_us = wfi_costs_recompute(costs, computed, u);
    }
    wf_costs_destroy(computed);
    return WF_OK;
}

/* ---- public ---- */

int wf_costs_n_units(const wf_costs *costs) {
    return costs->n_units;
}

wf_unit_cost wf_costs_unit(const wf_costs *costs, int unit) {
    return unit >= 0 && unit < costs->n_units ? costs->units[unit] : (wf_unit_cost){0};
}

wf_rates wf_costs_rates(const wf_costs *costs) {
    return costs->rates;
}

int wf_costs_is_measured(const wf_costs *costs) {
    return costs->is_measured;
}

void wf_costs_set_unit(wf_costs *costs, int unit, wf_unit_cost times) {
    if (unit < 0 || unit >= costs->n_units) return;
    times.name = costs->units[unit].name;
    costs->units[unit] = times;
}

void wf_costs_set_rates(wf_costs *costs, wf_rates rates) {
    costs->rates = rates;
}

wf_status wf_costs_set_crowded(wf_costs *costs, const wf_costs *crowded) {
    wf_costs *copy;
    if (crowded->n_units != costs->n_units)
        return wfi_fail(costs->ctx, WF_INVALID_ARG, "costs of %d units cannot be crowded by %d",
                        costs->n_units, crowded->n_units);
    WF_TRY(wfi_costs_copy(costs->ctx, crowded, &copy));
    wf_costs_destroy(costs->crowded);
    costs->crowded = copy;
    return WF_OK;
}

void wf_costs_destroy(wf_costs *costs) {
    if (!costs) return;
    wf_costs_destroy(costs->crowded);
    for (int32_t u = 0; u < costs->n_units && costs->units; u++)
        wfi_free(costs->ctx, (void *)(uintptr_t)costs->units[u].name);
    wfi_free(costs->ctx, costs->units);
    wfi_free(costs->ctx, costs);
}
