/* The launcher's side of --ranks A:B: the places in use, and a plan for them. */
#include "restart/elastic.h"
#include "common/text.h"

#include <string.h>

static volatile sig_atomic_t is_asked;

static void ask(int number) {
    (void)number;
    is_asked = 1;
}

/* ---- the plan for fewer ranks ---- */

/* A plan's text without lanes=A+B, which suits one number of replicas only. */
static void keep_keys(elastic *e, const char *text) {
    const char *lanes = strstr(text, ",lanes="), *keys = strchr(text, ',');
    bool is_fixed = lanes && strncmp(lanes, ",lanes=m", 8) != 0;
    size_t n = is_fixed ? (size_t)(lanes - keys) : strlen(keys);
    const char *rest = is_fixed ? lanes + 1 + strcspn(lanes + 1, ",") : "";
    snprintf(e->keys, sizeof e->keys, "%.*s%s", (int)n, keys, rest);
}

/* Uneven shares, the larger ones first. */
static void add_lanes(const elastic *e, int dp, char *text, size_t bytes) {
    int64_t n = e->roster->n_lanes;
    for (int k = 0; k < dp; k++)
        text_add(text, bytes, "%s%lld", k ? "+" : ",lanes=", (long long)(n / dp + (k < n % dp)));
}

/* Returns whether the recipe, as far as it is known, has lanes for the plan; *n_ranks_out is 0 if
 * the text is not a plan. */
static bool suits(const elastic *e, const char *text, int *n_ranks_out) {
    wf_recipe recipe = e->recipe;
    wf_plan *plan;
    *n_ranks_out = 0;
    if (wf_plan_parse(e->ctx, text, &plan) != WF_OK) return false;
    *n_ranks_out = wf_plan_n_ranks(plan);
    recipe.n_lanes = e->roster->n_lanes;
    recipe.batch = recipe.n_micro = e->roster->n_micro;
    recipe.n_workers = e->roster->n_workers;
    recipe.n_slices = wf_plan_tp(plan);
    wf_status status =
        recipe.n_lanes ? wf_recipe_resolve(e->ctx, &recipe, NULL, plan, &recipe) : WF_OK;
    wf_plan_destroy(plan);
    return status == WF_OK;
}

/* Says why `dp` replicas of `n` ranks in all are too many. */
static void say_idle(elastic *e, int dp, int n, int n_places) {
    bool is_sync = e->recipe.update == WF_UPDATE_SYNC;
    if (n > n_places)
        snprintf(e->idle, sizeof e->idle, "dp=%d takes %d ranks", dp, n);
    else if (n)
        snprintf(e->idle, sizeof e->idle, "dp=%d cannot divide the recipe's %lld %s in this plan",
                 dp, (long long)(is_sync ? e->roster->n_lanes : e->roster->n_workers),
                 is_sync ? "lanes" : "workers");
    else
        snprintf(e->idle, sizeof e->idle, "the plan does not allow dp=%d", dp);
}

/* Returns the number of ranks of a plan of `dp` replicas that suits the recipe, or 0. */
static int try_replicas(elastic *e, int dp, int n_places) {
    int n, n_uneven;
    bool is_sync = e->recipe.update == WF_UPDATE_SYNC;
    snprintf(e->plan, sizeof e->plan, "dp=%d%s", dp, e->keys);
    bool is_good = suits(e, e->plan, &n);
    if (!is_good && n && n <= n_places && is_sync && dp <= e->roster->n_lanes) {
        add_lanes(e, dp, e->plan, sizeof e->plan);
        is_good = suits(e, e->plan, &n_uneven);
    }
    if (is_good && n <= n_places) return n;
    say_idle(e, dp, n, n_places);
    return 0;
}

/* Returns the most ranks that the places can be used by; 0: none. */
static int fit(elastic *e, int n_places) {
    *e->idle = *e->plan = 0;
    if (n_places == e->n_most || !*e->keys) return n_places;
    for (int dp = e->dp; dp > 0; dp--) {
        int n = try_replicas(e, dp, n_places);
        if (n == n_places) *e->idle = 0;
        if (n) return n;
    }
    return 0;
}

/* ---- places ---- */

static int count_places(elastic *e) {
    int n = 0;
    for (int k = 0; k < e->n_most; k++)
        if (!e->is_out[k]) e->place[n++] = k;
    return n;
}

void elastic_renew(elastic *e) {
    memset(e->is_out, 0, sizeof e->is_out);
    e->n_ranks = fit(e, count_places(e));
}

void elastic_lose(elastic *e) {
    is_asked = 0;
    for (int r = 0; r < e->n_ranks; r++)
        e->is_out[e->place[r]] |= e->lost[r] | e->roster->is_faulty[r];
    e->n_ranks = fit(e, count_places(e));
    e->was_short = e->n_ranks < e->n_least;
    if (e->was_short) elastic_renew(e);
}

const char *elastic_say(const elastic *e, char *text, size_t bytes) {
    int n_idle = -e->n_ranks;
    for (int k = 0; k < e->n_most; k++) n_idle += !e->is_out[k];
    snprintf(text, bytes, " with %s%d of %d ranks", e->was_short ? "again " : "", e->n_ranks,
             e->n_most);
    if (e->was_short)
        text_add(text, bytes, ", because fewer than %d are left", e->n_least);
    else if (n_idle)
        text_add(text, bytes, "; %d more idle%s, because %s", n_idle, n_idle == 1 ? "s" : "",
                 e->idle);
    return text;
}

/* ---- attempts ---- */

/* Other programs may end on SIGTERM with any status. */
bool elastic_was_asked(const elastic *e, const wf_launch_result *result) {
    bool is_good = !result->exit_status || e->roster == &e->own;
    return result->interrupted_by == SIGUSR1 && result->stopped_by == SIGUSR1 && is_good;
}

bool elastic_is_asked(void) {
    return is_asked;
}

bool elastic_is_short(const elastic *e, const wf_launch_result *result) {
    bool may_be = result->exit_status == EXIT_USAGE || result->exit_status == EXIT_DOES_NOT_FIT;
    return may_be && result->failed_rank >= 0 && e->n_ranks < e->n_most;
}

void elastic_start(elastic *e, wf_launch_config *config) {
    roster *r = e->roster;
    r->n_ranks = config->n_ranks = e->n_ranks;
    r->n_places = e->n_most;
    memcpy(r->place, e->place, sizeof r->place);
    memcpy(r->plan, e->plan, sizeof r->plan);
    if (r->n_attempts < MOST_ATTEMPTS) r->ranks_of[r->n_attempts++] = e->n_ranks;
    e->was_short = false;
    memset(r->is_faulty, 0, sizeof r->is_faulty);
    config->lost = e->lost;
    config->stop_signal = e->n_ranks < e->n_most ? SIGUSR1 : 0;
}

void elastic_begin(elastic *e, roster *shared) {
    struct sigaction action = {.sa_handler = ask};
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, &e->before);
    e->roster = shared ? shared : &e->own;
    elastic_renew(e);
}

void elastic_end(const elastic *e) {
    sigaction(SIGUSR1, &e->before, NULL);
}

/* ---- checks ---- */

/* Keeps the keys of the plan that the places share. */
static exit_status keep_plan(elastic *e, const wf_plan *plan) {
    const char *text = wf_plan_text(plan);
    int n = wf_plan_n_ranks(plan);
    e->dp = wf_plan_dp(plan);
    if (n != e->n_most)
        return complain(EXIT_USAGE,
                        "--ranks %d:%d: the plan %s is for %d rank%s; it has to be "
                        "that of all %d",
                        e->n_least, e->n_most, text, n, n == 1 ? "" : "s", e->n_most);
    if (e->n_least == e->n_most) return EXIT_DONE;
    if (wf_plan_loads_at_root(plan) || e->dp < 2)
        return complain(EXIT_USAGE,
                        "--ranks %d:%d: fewer ranks are fewer replicas, and the plan %s has no "
                        "dp=N to reduce; give dp, or --ranks %d",
                        e->n_least, e->n_most, text, e->n_most);
    if (strlen(text) + 8 * (size_t)e->dp >= sizeof e->keys)
        return complain(EXIT_USAGE, "--ranks %d:%d takes plans of at most %zu characters",
                        e->n_least, e->n_most, sizeof e->keys - 8 * (size_t)e->dp);
    keep_keys(e, text);
    return EXIT_DONE;
}

static exit_status check_plan(elastic *e, const options *o) {
    wf_plan *plan;
    char all[40];
    snprintf(all, sizeof all, "dp=%d", e->n_most);
    if (o->plan && !strcmp(o->plan, "auto")) return EXIT_DONE;
    bool is_open = !o->plan || !*o->plan;
    if (wf_plan_parse(e->ctx, is_open ? all : o->plan, &plan) != WF_OK)
        return complain(EXIT_USAGE, "%s", wf_context_error(e->ctx));
    exit_status bad = e->n_most == 1 ? EXIT_DONE : keep_plan(e, plan);
    wf_plan_destroy(plan);
    return bad;
}

exit_status elastic_open(wf_context *ctx, const options *o, bool is_own, elastic *e) {
    memset(e, 0, sizeof *e);
    e->ctx = ctx;
    e->recipe = o->recipe;
    e->n_least = (int)o->ranks_least;
    e->n_most = (int)o->ranks;
    if (!o->restarts)
        return complain(EXIT_USAGE,
                        "--ranks %d:%d changes the number of ranks at restarts; give "
                        "--restarts N, too",
                        e->n_least, e->n_most);
    return is_own ? check_plan(e, o) : EXIT_DONE;
}
