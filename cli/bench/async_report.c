/* weft bench async: the rows as a table and as JSON. */
#include "bench/async.h"
#include "report.h"
#include "text.h"

#include <math.h>
#include <string.h>

/* ---- numbers ---- */

double async_rate(const async_row *r) {
    return samples_median(&r->rates, 0);
}

double async_mean_loss(const bench_async *b, const async_row *r, size_t step) {
    size_t n = (size_t)b->n_window;
    double sum = 0;
    if (n > step + 1) n = step + 1;
    for (size_t k = step + 1 - n; k <= step; k++)
        sum += json_number_value(json_array_get(r->losses, k));
    return sum / (double)n;
}

double async_last_loss(const bench_async *b, const async_row *r) {
    return async_mean_loss(b, r, json_array_size(r->losses) - 1);
}

double async_seconds_to_target(const bench_async *b, const async_row *r) {
    size_t n = json_array_size(r->losses);
    double each_s = (double)b->c->o.recipe.batch / async_rate(r);
    for (size_t step = (size_t)b->n_window - 1; step < n; step++)
        if (async_mean_loss(b, r, step) <= b->target_loss) return (double)(step + 1) * each_s;
    return NAN;
}

/* ---- table ---- */

static void staleness_text(const async_row *r, char text[TEXT_BYTES]) {
    double n = 0, old = 0;
    size_t most = 0;
    for (size_t k = 0; k < json_array_size(r->staleness); k++) {
        double here = json_number_value(json_array_get(r->staleness, k));
        n += here;
        old += here * (double)k;
        if (here > 0) most = k;
    }
    snprintf(text, TEXT_BYTES, "-");
    if (n > 0) snprintf(text, TEXT_BYTES, "%.2f, %zu", old / n, most);
}

static void say_rows(const bench_async *b, double slow) {
    char head[60] = "even workers";
    if (slow > 1) snprintf(head, sizeof head, "worker 0 slowed %g x", slow);
    say(b->c, "\n%-32s%11s%11s%10s%11s%13s\n", head, "samples/s", "predicted", "loss", "s to loss",
        "steps old");
    for (const async_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        char old[TEXT_BYTES], seconds[TEXT_BYTES] = "-";
        double s = async_seconds_to_target(b, r);
        if (r->slow != slow) continue;
        if (!isnan(s)) snprintf(seconds, sizeof seconds, "%.3g", s);
        staleness_text(r, old);
        say(b->c, "%-32s%11.1f%11.1f%10.4f%11s%13s\n", r->name, async_rate(r), r->predicted,
            async_last_loss(b, r), seconds, old);
    }
}

static void say_costs(const bench_async *b) {
    char compute[TEXT_BYTES], transfer[TEXT_BYTES], update[TEXT_BYTES];
    const async_costs *c = &b->costs;
    say(b->c,
        "\none worker: %s to compute a share of a batch, %s to send the parameters one way,\n"
        "%s to update them; the predictions use these\n",
        text_of_us(compute, c->compute_ms * 1e3), text_of_us(transfer, c->transfer_ms * 1e3),
        text_of_us(update, c->update * 1e3));
    say(b->c,
        "loss: mean of the last %d of %lld steps; s to loss: seconds until such a mean is %.4f\n"
        "steps old: of gradients, mean and maximum\n",
        b->n_window, (long long)b->c->o.steps, b->target_loss);
}

void async_say(const bench_async *b) {
    const options *o = &b->c->o;
    say(b->c, "%s: %lld workers, batch %lld, %lld lanes; %lld round%s\n", o->model,
        (long long)b->n_workers, (long long)o->recipe.batch, (long long)b->n_lanes,
        (long long)o->repeat, o->repeat == 1 ? "" : "s");
    say_rows(b, 1);
    if (o->slow > 1) say_rows(b, o->slow);
    say_costs(b);
}

/* ---- JSON ---- */

static const char *update_name(const async_row *r) {
    static const char *const names[] = {
        [WF_UPDATE_SYNC] = "sync", [WF_UPDATE_ASYNC] = "async", [WF_UPDATE_LOCAL] = "local"};
    return names[r->update];
}

/* Synchronous gradients are never stale; local steps have no common parameters to compare with. */
static json_t *staleness_json(const bench_async *b, const async_row *r) {
    json_int_t n = b->n_workers * b->c->o.steps * (json_int_t)r->rates.n;
    if (r->update == WF_UPDATE_SYNC) return json_pack("[I]", n);
    return r->staleness ? json_incref(r->staleness) : json_array();
}

static json_t *row_json(const bench_async *b, const async_row *r) {
    return json_pack(
        "{s:s, s:s, s:s, s:f, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:O}", "update",
        update_name(r), "name", r->name, "plan", r->plan, "slow", r->slow, "servers",
        (json_int_t)r->n_servers, "samples_per_second", json_number(async_rate(r)), "predicted",
        json_number(r->predicted), "runs", samples_json(&r->rates), "server_busy_predicted",
        json_number(r->n_servers ? r->server_busy : NAN), "loss",
        json_number(async_last_loss(b, r)), "seconds_to_loss",
        json_number(async_seconds_to_target(b, r)), "test_accuracy", json_number(r->accuracy),
        "staleness", staleness_json(b, r), "losses", r->losses);
}

static json_t *report_of(const bench_async *b) {
    const options *o = &b->c->o;
    json_t *rows = json_array();
    for (const async_row *r = b->rows; r < b->rows + b->n_rows; r++)
        json_array_append_new(rows, row_json(b, r));
    json_t *costs = json_pack("{s:f, s:f, s:f}", "compute_ms", b->costs.compute_ms, "transfer_ms",
                              b->costs.transfer_ms, "update_ms", b->costs.update);
    json_t *report =
        json_pack("{s:s, s:O, s:I, s:I, s:I, s:i, s:o, s:o, s:o}", "weft", WEFT_VERSION, "recipe",
                  b->recipe, "workers", (json_int_t)b->n_workers, "steps", (json_int_t)o->steps,
                  "repeat", (json_int_t)o->repeat, "cores", apart_n_cores(), "target_loss",
                  json_number(b->target_loss), "one_worker", costs, "rows", rows);
    effort_report(&b->spent, report);
    return report;
}

exit_status async_write(const bench_async *b) {
    exit_status bad = b->c->o.out ? async_plot(b) : EXIT_DONE;
    return bad ? bad : report_write(b->c, report_of(b));
}
