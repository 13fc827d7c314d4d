/* The ranks' side of --ranks A:B: the launcher's choices for this attempt. */
#include "restart/restart.h"

#include <stdlib.h>

static roster *find(const cli *c) {
    return c->history && c->history->roster.n_ranks ? &c->history->roster : NULL;
}

/* Takes the devices of the places in use. A comma ends a list of one, because a number alone would
 * count devices. */
static exit_status take_devices(cli *c, const roster *r) {
    char *list = NULL;
    size_t n_bytes;
    FILE *text = open_memstream(&list, &n_bytes);
    wf_status status = text ? WF_OK : WF_NO_MEMORY;
    for (int k = 0; k < r->n_ranks && status == WF_OK; k++) {
        char name[WF_DEVICE_NAME_BYTES];
        status = wf_devices_name(c->ctx, c->o.devices, r->place[k], name);
        if (status == WF_OK) fprintf(text, "%s%s", k ? "," : "", name);
    }
    if (text && r->n_ranks == 1) fputc(',', text);
    bool is_whole = text && !fclose(text);
    exit_status bad = status == WF_NO_MEMORY || !is_whole ? complain(EXIT_FAILED, "no memory left")
                                                          : complain_of(c, status);
    if (!bad && !option_set(&c->o, OPT_devices, list))
        bad = complain(EXIT_FAILED, "%s", c->o.error);
    free(list);
    return bad;
}

/* The first attempt's, where the options leave the choice to weft. */
static void take_recipe(options *o, const roster *r) {
    wf_recipe *recipe = &o->recipe;
    if (!r->n_lanes) return;
    if (recipe->n_micro <= 0) recipe->n_micro = r->n_micro; /* 0, or auto */
    if (!recipe->n_lanes) recipe->n_lanes = r->n_lanes;
    if (!recipe->n_workers) recipe->n_workers = r->n_workers;
    if (!recipe->n_threads) recipe->n_threads = r->n_threads;
}

exit_status roster_take(cli *c) {
    const roster *r = find(c);
    if (!r) return EXIT_DONE;
    c->o.ranks = r->n_ranks;
    take_recipe(&c->o, r);
    if (r->n_ranks == r->n_places) return EXIT_DONE;
    if (*r->plan && !option_set(&c->o, OPT_plan, r->plan))
        return complain(EXIT_FAILED, "%s", c->o.error);
    return c->o.devices ? take_devices(c, r) : EXIT_DONE;
}

void roster_report_fault(const cli *c) {
    roster *r = find(c);
    if (r && c->job) r->is_faulty[wf_job_rank(c->job)] = 1;
}

void roster_keep_recipe(const cli *c) {
    roster *r = find(c);
    const wf_recipe *recipe = &c->o.recipe;
    if (!r || !c->is_root) return;
    r->n_micro = recipe->n_micro;
    r->n_workers = recipe->n_workers;
    r->n_threads = recipe->n_threads;
    __atomic_store_n(&r->n_lanes, recipe->n_lanes, __ATOMIC_RELEASE);
}

void roster_report(const cli *c, json_t *report) {
    const roster *r = find(c);
    if (!r) return;
    json_t *ranks = json_array();
    for (int k = 0; k < r->n_attempts; k++)
        json_array_append_new(ranks, json_integer(r->ranks_of[k]));
    json_object_set_new(report, "ranks_per_attempt", ranks);
}
