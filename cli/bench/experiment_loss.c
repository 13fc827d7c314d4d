/* Why a pipeline of n stages is not n times as fast as one device. All of it is measured: the
 * division of each rank's time, and single devices with the same and with the best split.
 *
 *     pipeline = compute + bubble + transfer + wait + host     (mean of the ranks)
 *     single   = compute + idle
 *     pipeline - single / n = bubble + transfer + wait + host - idle / n
 *                             + (compute of all ranks - compute of the single device) / n
 *
 * The bubble includes imbalance: while the longest stage computes, the others must wait.
 * The last line includes the cost of the smaller microbatch; the rest comes from sharing memory.
 */
#include "bench/experiment.h"

bool loss_of(const experiment *e, loss_account *a) {
    const row *pipeline = experiment_best(e, "pipeline", NULL, NULL, 0);
    const row *single = experiment_best(e, "single device", NULL, NULL, 0);
    const row *same_split =
        pipeline ? experiment_best(e, "single device", NULL, NULL, pipeline->split) : NULL;
    if (!single || !same_split) return false;
    int n = pipeline->n_ranks;
    *a = (loss_account){.pipeline = pipeline, .single = single, .seconds = row_mean(pipeline)};
    a->ideal = row_mean(single) / n;
    double mean = row_compute(pipeline) / n, longest = 0;
    for (int rank = 0; rank < n; rank++) {
        rank_time t = row_time(pipeline, rank);
        a->bubble += t.bubble / n;
        a->transfer += t.transfer / n;
        if (t.compute > longest) longest = t.compute;
    }
    a->imbalance = longest - mean;
    a->waiting = a->seconds - mean - a->bubble - a->transfer; /* the host's part included */
    a->bubble -= a->imbalance;
    a->small_microbatch = (row_compute(same_split) - row_compute(single)) / n;
    a->shared_memory = mean - row_compute(same_split) / n;
    a->single_idle = (row_compute(single) - row_mean(single)) / n;
    return true;
}

static void say_part(const experiment *e, const loss_account *a, const char *what, double seconds) {
    say(e->c, "  %-58s %8.3f s %6.1f %%\n", what, seconds, 100 * seconds / a->ideal);
}

void loss_say(const experiment *e, const loss_account *a) {
    say(e->c, "\nWhere the rest of %d x goes, for %s at split %lld:\n", a->pipeline->n_ranks,
        a->pipeline->plan, (long long)a->pipeline->split);
    say_part(e, a, "ideal: the best single device, divided by its number", a->ideal);
    say_part(e, a, "bubble: the pipeline fills and drains", a->bubble);
    say_part(e, a, "imbalance: the longest stage over the mean one", a->imbalance);
    say_part(e, a, "small microbatches: this split over the best, one device", a->small_microbatch);
    say_part(e, a, "shared memory: busy neighbours, at the same split", a->shared_memory);
    say_part(e, a, "transfer", a->transfer);
    say_part(e, a, "waiting: waking up, queues, the host", a->waiting);
    say_part(e, a, "less idle time of the single device", a->single_idle);
    say_part(e, a, "measured", a->seconds);
}

json_t *loss_json(const loss_account *a) {
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "plan",
                     a->pipeline->plan, "split", (json_int_t)a->pipeline->split, "seconds",
                     a->seconds, "ideal_seconds", a->ideal, "bubble", a->bubble, "imbalance",
                     a->imbalance, "small_microbatch", a->small_microbatch, "shared_memory",
                     a->shared_memory, "transfer", a->transfer, "waiting", a->waiting,
                     "single_idle", a->single_idle);
}
