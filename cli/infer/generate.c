/* weft generate: a text goes on, token by token. Keys and values of earlier tokens are kept in the
 * model's cache, so that each token costs a forward run of itself alone; the prompt goes through in
 * blocks. A recurrent model has its hidden state instead, and no blocks. */
#include "common/text.h"
#include "common/tuned.h"
#include "infer/logits.h"
#include "job/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK     64 /* tokens of the prompt at once */
#define MOST_STEP (1 << 24)

typedef struct generation {
    cli *c;
    saved_model saved;
    wf_tokenizer *tokenizer;
    wf_model *model;
    wf_plan *plan;
    wf_trainer *trainer;
    bool is_recurrent;
    int64_t vocab, positions, block;
    int32_t *tokens; /* the prompt, and its continuation */
    int64_t n_prompt, n_steps;
    const char *stop;                /* NULL: there is none */
    size_t prompt_bytes, stop_bytes; /* of the text: up to the prompt's end, up to `stop` */
    float *logits;                   /* [block, vocab] */
    int32_t *order;                  /* [vocab] */
    uint64_t random;
} generation;

/* ---- which token comes next ---- */

/* Uniform in [0, 1): splitmix64. */
static double draw(generation *g) {
    uint64_t z = g->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* From the likeliest on, until their share of the whole is reached. */
static int32_t choose(generation *g, const float *logits) {
    const options *o = &g->c->o;
    int64_t n = o->top_k && o->top_k < g->vocab ? o->top_k : g->vocab;
    int32_t best = 0;
    for (int32_t k = 1; k < g->vocab; k++)
        if (logits[k] > logits[best]) best = k;
    if (o->temperature == 0) return best;
    double sum = 0, so_far = 0, top = logits[best];
    logits_sort(logits, g->vocab, g->order);
    for (int64_t k = 0; k < n; k++) sum += exp((logits[g->order[k]] - top) / o->temperature);
    double wanted = draw(g) * sum;
    for (int64_t k = 0; k < n; k++) {
        so_far += exp((logits[g->order[k]] - top) / o->temperature);
        if (so_far > wanted) return g->order[k];
    }
    return g->order[n - 1];
}

/* ---- forward ---- */

/* n tokens from place `first` on, in a run of `size`: those beyond n are nowhere in the text. */
static wf_status forward(const generation *g, int64_t first, int64_t n, int64_t size) {
    int32_t x[BLOCK] = {0}, position[BLOCK];
    for (int64_t i = 0; i < size; i++) {
        position[i] = i < n ? (int32_t)(first + i) : -1;
        if (i < n) x[i] = g->tokens[first + i];
    }
    const wf_feed feeds[] = {{"x", x, (size_t)size * sizeof *x},
                             {"position", position, (size_t)size * sizeof *position}};
    return wf_trainer_forward(g->trainer, feeds, g->is_recurrent ? 1 : 2, size, "logits", g->logits,
                              (size_t)(size * g->vocab) * sizeof *g->logits);
}

static exit_status check_finite(const generation *g, const float *logits) {
    for (int64_t k = 0; k < g->vocab; k++)
        if (!isfinite(logits[k]))
            return complain(EXIT_FAILED, "%s: a logit is infinite or no number", g->c->o.init);
    return EXIT_DONE;
}

/* Whether the continuation of the prompt, up to token n, contains the text that ends it. */
static exit_status look_for_stop(generation *g, int64_t n, bool *is_there_out) {
    char *text, *found;
    size_t n_bytes;
    *is_there_out = false;
    if (!g->stop) return EXIT_DONE;
    TRY(complain_of(g->c, wf_tokenizer_decode(g->tokenizer, g->tokens, n, &text, &n_bytes)));
    found = memmem(text + g->prompt_bytes, n_bytes - g->prompt_bytes, g->stop, strlen(g->stop));
    *is_there_out = found != NULL;
    if (found) g->stop_bytes = (size_t)(found - text);
    wf_text_free(g->c->ctx, text);
    return EXIT_DONE;
}

static exit_status go_on(generation *g) {
    float *last = NULL;
    for (int64_t first = 0; first < g->n_prompt; first += g->block) {
        int64_t left = g->n_prompt - first, n = left < g->block ? left : g->block;
        TRY(complain_of(g->c, forward(g, first, n, g->block)));
        last = g->logits + (n - 1) * g->vocab;
    }
    for (int64_t step = 0; step < g->n_steps; step++) {
        int64_t n = g->n_prompt + step;
        TRY(check_finite(g, last));
        if (interrupt_status()) return complain(interrupt_status(), "interrupted");
        g->tokens[n] = choose(g, last);
        bool is_end;
        TRY(look_for_stop(g, n + 1, &is_end));
        if (is_end) g->n_steps = step + 1;
        if (step + 1 == g->n_steps) break;
        TRY(complain_of(g->c, forward(g, n, 1, 1)));
        last = g->logits;
    }
    return EXIT_DONE;
}

/* ---- before ---- */

static exit_status check(const cli *c) {
    const options *o = &c->o;
    if (!o->init) return complain(EXIT_USAGE, "--init is missing: the weights to go on with");
    if (!o->prompt) return complain(EXIT_USAGE, "--prompt is missing: the text to go on from");
    if (!(o->temperature >= 0))
        return complain(EXIT_USAGE, "--temperature must be a number from 0");
    if (o->top_k && o->temperature == 0)
        return complain(EXIT_USAGE, "--top-k has no effect here: --temperature is 0, which takes "
                                    "the likeliest");
    if (o->steps > MOST_STEP)
        return complain(EXIT_USAGE, "--steps %lld: at most %d", (long long)o->steps, MOST_STEP);
    return EXIT_DONE;
}

static exit_status open_tokenizer(generation *g) {
    exit_status bad = about_tokenizer(g->c, &g->saved, &g->tokenizer);
    bool are_bytes = !g->saved.vocab || g->saved.vocab == 256;
    if (bad || g->tokenizer) return bad;
    if (!are_bytes)
        return complain(EXIT_USAGE, "--tokenizer is missing: the vocabulary of %s has %lld tokens",
                        g->c->o.init, (long long)g->saved.vocab);
    return complain_of(g->c, wf_tokenizer_create_bytes(g->c->ctx, &g->tokenizer));
}

static wf_status find_model(generation *g) {
    const options *o = &g->c->o;
    const wf_model_info *info = wf_model_registry_find(o->model);
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    g->is_recurrent = info->is_recurrent;
    config.cached = !g->is_recurrent;
    if (g->is_recurrent) config.n_tokens = 1;
    config.n_classes = g->saved.vocab ? g->saved.vocab
                       : o->vocab     ? o->vocab
                                      : wf_tokenizer_n_tokens(g->tokenizer);
    if (info->has_sizes) {
        job_take_sizes(o, &config);
        about_take_properties(&g->saved, &config);
        config.n_positions = g->saved.positions;
    }
    TRY(wf_model_find(g->c->ctx, o->model, &config, &g->model));
    g->vocab = wf_model_config_of(g->model)->n_classes;
    g->positions = g->is_recurrent ? INT64_MAX : wf_model_config_of(g->model)->n_positions;
    g->block = g->is_recurrent ? 1 : g->positions < BLOCK ? g->positions : BLOCK;
    return WF_OK;
}

/* Slicing never cuts attention with a cache, so slices of the other layers alone would run: but
 * nothing has been trained in such slices. */
static exit_status check_slices(const generation *g) {
    const wf_recipe *given = &g->c->o.recipe;
    wf_recipe recipe;
    TRY(complain_of(g->c, wf_recipe_resolve(g->c->ctx, given, g->model, NULL, &recipe)));
    int64_t n_heads = wf_model_config_of(g->model)->n_heads, below = recipe.n_slices;
    if (g->is_recurrent || n_heads % recipe.n_slices == 0) return EXIT_DONE;
    while (n_heads % below) below--;
    return complain(EXIT_USAGE,
                    "recipe: slices=%lld do not divide the %lld heads of %s, so no training run "
                    "can have them; %lld would",
                    (long long)recipe.n_slices, (long long)n_heads, g->c->o.model,
                    (long long)below);
}

static exit_status read_prompt(generation *g) {
    const options *o = &g->c->o;
    int32_t *tokens;
    TRY(complain_of(g->c, wf_tokenizer_encode(g->tokenizer, "--prompt", o->prompt,
                                              strlen(o->prompt), &tokens, &g->n_prompt)));
    g->n_steps = option_is_given(&g->c->o, OPT_steps) ? o->steps : 50;
    exit_status bad = EXIT_DONE;
    if (g->n_prompt < 1)
        bad = complain(EXIT_USAGE, "--prompt has no tokens");
    else if (g->n_prompt + g->n_steps > g->positions)
        bad = complain(EXIT_USAGE,
                       "--steps %lld: the prompt has %lld tokens, and this model reads %lld in all",
                       (long long)g->n_steps, (long long)g->n_prompt, (long long)g->positions);
    if (!bad) g->tokens = calloc((size_t)(g->n_prompt + g->n_steps), sizeof *g->tokens);
    g->logits = calloc((size_t)(g->block * g->vocab), sizeof *g->logits);
    g->order = calloc((size_t)g->vocab, sizeof *g->order);
    if (!bad && (!g->tokens || !g->logits || !g->order))
        bad = complain(EXIT_FAILED, "no memory left");
    if (!bad) memcpy(g->tokens, tokens, (size_t)g->n_prompt * sizeof *tokens);
    wf_tokens_free(g->c->ctx, tokens);
    return bad;
}

/* --stop, or the token that ends GPT-2's texts, if the vocabulary has it. */
static exit_status find_stop(generation *g) {
    static const char end_of_text[] = "<|endoftext|>";
    const wf_tokenizer *t = g->tokenizer;
    wf_context *ctx = g->c->ctx;
    char *text;
    int32_t *tokens;
    int64_t n = 0;
    TRY(complain_of(g->c, wf_tokenizer_decode(t, g->tokens, g->n_prompt, &text, &g->prompt_bytes)));
    wf_text_free(ctx, text);
    g->stop_bytes = SIZE_MAX;
    g->stop = g->c->o.stop;
    if (g->stop || wf_tokenizer_kind_of(t) != WF_TOKENIZER_BPE) return EXIT_DONE;
    TRY(complain_of(
        g->c, wf_tokenizer_encode(t, "--stop", end_of_text, strlen(end_of_text), &tokens, &n)));
    wf_tokens_free(ctx, tokens);
    if (n == 1) g->stop = end_of_text;
    return EXIT_DONE;
}

static exit_status make_trainer(generation *g) {
    wf_recipe recipe = g->c->o.recipe;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.forward_only = 1;
    config.devices = g->c->o.devices;
    config.job = g->c->job;
    config.device_memory_bytes = g->c->o.device_memory;
    recipe.batch = g->block;
    wf_status status =
        wf_trainer_create(g->c->ctx, g->model, &recipe, g->plan, &config, &g->trainer);
    if (status == WF_OK && g->c->is_root) tuned_warn(g->c, wf_trainer_program(g->trainer));
    if (status == WF_OK) status = wf_trainer_prepare_eval(g->trainer, 1);
    if (status == WF_OK) status = wf_trainer_load_weights(g->trainer, g->c->o.init);
    return complain_of(g->c, status);
}

static exit_status prepare(generation *g) {
    cli *c = g->c;
    TRY(check(c));
    TRY(about_read(c, &g->saved));
    TRY(job_check_model(c));
    if (!wf_model_registry_find(c->o.model)->takes_tokens)
        return complain(EXIT_USAGE, "%s holds a model that cannot generate text: %s reads images",
                        c->o.init, c->o.model);
    TRY(report_check(c));
    TRY(open_tokenizer(g));
    TRY(about_check(c, &g->saved, g->tokenizer));
    TRY(complain_of(c, wf_plan_parse(c->ctx, c->o.plan, &g->plan)));
    TRY(job_cap_memory(c, g->plan));
    TRY(complain_of(c, find_model(g)));
    TRY(check_slices(g));
    TRY(read_prompt(g));
    TRY(find_stop(g));
    return make_trainer(g);
}

/* ---- after ---- */

static exit_status tell(const generation *g, double seconds) {
    char *text;
    size_t n_bytes;
    int64_t n = g->n_prompt + g->n_steps;
    TRY(complain_of(g->c, wf_tokenizer_decode(g->tokenizer, g->tokens, n, &text, &n_bytes)));
    bool is_stopped = g->stop_bytes < n_bytes;
    char *shown = text_repaired(text, is_stopped ? g->stop_bytes : n_bytes);
    wf_text_free(g->c->ctx, text);
    json_t *tokens = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(tokens, json_integer(g->tokens[i]));
    json_t *report =
        shown ? json_pack("{s:s, s:o, s:I, s:b, s:o}", "text", shown, "tokens", tokens,
                          "prompt_tokens", (json_int_t)g->n_prompt, "stopped", (int)is_stopped,
                          "tokens_per_second", json_number((double)g->n_steps / seconds))
              : NULL;
    if (!report) {
        free(shown);
        return complain(EXIT_FAILED, "no memory left");
    }
    say(g->c, "%s\n", shown);
    free(shown);
    return report_write(g->c, report);
}

exit_status run_generate(cli *c) {
    generation g = {.c = c, .random = c->o.recipe.seed};
    struct timespec begin, end;
    bool done;
    interrupt_watch();
    exit_status bad = processes_begin(c, &done);
    if (bad || done) return bad;
    bad = prepare(&g);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (!bad) bad = go_on(&g);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds =
        (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    if (!bad) bad = tell(&g, seconds);
    wf_trainer_destroy(g.trainer);
    wf_model_destroy(g.model);
    wf_plan_destroy(g.plan);
    wf_tokenizer_destroy(g.tokenizer);
    about_release(&g.saved);
    free(g.tokens);
    free(g.logits);
    free(g.order);
    return bad;
}
