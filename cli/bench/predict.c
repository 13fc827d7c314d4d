#include "bench/predict.h"

#include <string.h>

#define USUAL                                                                                      \
    "dp=2;dp=2,zero=1;dp=2,zero=2;dp=2,zero=3;pp=2;pp=2,schedule=zb1;dp=2,recompute=all;"          \
    "pp=2,recompute=all;dp=2,offload=state"
#define USUAL_SLICED USUAL ";tp=2;tp=2,sp" /* where the recipe has slices */

static exit_status add(bench_predict *b, const char *text, size_t n) {
    size_t place = json_array_size(b->all.rows);
    exit_status bad = rounds_add(
        &b->all,
        json_pack("{s:I, s:s%, s:n, s:n, s:n, s:n, s:n, s:n, s:{s:[], s:[]}}", ".plan",
                  (json_int_t)place, ".name", text, n, "plan", "measured_ms", "predicted_ms",
                  "error", "spread", "fastest_ms", "peak_bytes", "planned", "measured"),
        PREDICT_MAX_ROWS);
    if (bad) return bad;
    const char *name = row_text(json_array_get(b->all.rows, place), ".name");
    return complain_of(b->all.c, wf_plan_parse(b->all.c->ctx, name, &b->plans[place]));
}

/* All steps train on the first batch. */
static exit_status add_rows(rounds *all) {
    bench_predict *b = (bench_predict *)all;
    const options *o = &all->c->o;
    const wf_batch *batch;
    TRY(job_open(all->c, o->steps + 1, &b->j));
    all->recipe = options_recipe(o);
    TRY(complain_of(all->c, job_loader(&b->j, WF_DATA_TRAIN, 0, 0, &b->loader)));
    TRY(complain_of(all->c, wf_loader_next(b->loader, &batch)));
    b->n_feeds = job_feeds(batch, b->feeds);
    const char *usual = o->recipe.n_slices > 1 ? USUAL_SLICED : USUAL;
    for (const char *at = o->plans ? o->plans : usual; at;) {
        size_t n = strcspn(at, ";");
        TRY(add(b, at, n));
        at = at[n] ? at + n + 1 : NULL;
    }
    return EXIT_DONE;
}

exit_status run_bench_predict(cli *c) {
    static const bench parts = {add_rows, predict_run, NULL, NULL};
    bench_predict b = {.loader = NULL};
    exit_status bad = apart_resolve(c, 3);
    if (!bad) bad = rounds_bench(&b.all, c, &parts);
    wf_loader_destroy(b.loader);
    for (int k = 0; k < PREDICT_MAX_ROWS; k++) wf_plan_destroy(b.plans[k]);
    job_close(&b.j);
    return bad;
}
