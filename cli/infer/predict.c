/* weft predict: pictures go through a saved model, and get a class and its probability each. */
#include "common/output.h"
#include "infer/logits.h"
#include "job/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct prediction {
    cli *c;
    job j;
    wf_trainer *trainer;
    wf_loader *loader;
    int64_t batch, n_classes, n_top;
    float *x;      /* [batch, x_shape]: the last batch, filled up */
    float *logits; /* [batch, n_classes] */
    int32_t *order;
    json_t *rows;
    output csv; /* with --csv */
} prediction;

static const char *class_of(const prediction *p, int32_t k, char number[16]) {
    const char *name = json_string_value(json_array_get(p->j.saved.images.class_names, (size_t)k));
    if (!name) name = wf_data_class_name(p->j.data, k);
    snprintf(number, 16, "%d", (int)k);
    return name ? name : number;
}

static const char *input_of(const prediction *p, int64_t i, char number[24]) {
    const char *name = wf_data_sample_name(p->j.data, WF_DATA_TEST, i);
    snprintf(number, 24, "%lld", (long long)i);
    return name ? name : number;
}

/* ---- rows ---- */

/* As RFC 4180 has it. */
static void put_csv_text(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

static void put_csv(const prediction *p, const char *input, const char *class, double share) {
    if (!p->c->o.csv) return;
    put_csv_text(p->csv.stream, input);
    fputc(',', p->csv.stream);
    put_csv_text(p->csv.stream, class);
    fprintf(p->csv.stream, ",%.9g\n", share);
}

/* A name of a file may be no text; it is shown all the same. */
static json_t *json_text(const char *text) {
    char shown[4096];
    json_t *string = json_string(text);
    return string ? string : json_string(wf_text_escape(text, shown, sizeof shown));
}

/* Prints the text on one line, with any content. */
static void say_text(const prediction *p, const char *before, const char *text) {
    char shown[4096];
    say(p->c, "%s%s", before, wf_text_escape(text, shown, sizeof shown));
}

static json_t *json_numbers(const float *numbers, int64_t n) {
    json_t *list = json_array();
    for (int64_t k = 0; k < n; k++) json_array_append_new(list, json_real((double)numbers[k]));
    return list;
}

static exit_status tell_one(prediction *p, int64_t i, const float *logits) {
    char number[16], place[24];
    const char *input = input_of(p, i, place);
    double sum = 0;
    for (int32_t k = 0; k < p->n_classes; k++)
        if (!isfinite(logits[k]))
            return complain(EXIT_FAILED, "%s: a logit of %s is infinite or no number", p->c->o.init,
                            input);
    logits_sort(logits, p->n_classes, p->order);
    for (int32_t k = 0; k < p->n_classes; k++) sum += exp((double)logits[k] - logits[p->order[0]]);
    json_t *top = json_array();
    say_text(p, "", input);
    for (int64_t k = 0; k < p->n_top; k++) {
        int32_t class = p->order[k];
        const char *name = class_of(p, class, number);
        double share = exp((double)logits[class] - logits[p->order[0]]) / sum;
        say_text(p, k ? ", " : ": ", name);
        say(p->c, " %.2f %%", 100 * share);
        put_csv(p, input, name, share);
        json_array_append_new(
            top, json_pack("{s:o, s:f}", "class", json_text(name), "probability", share));
    }
    say(p->c, "\n");
    json_t *row = json_pack("{s:o}", "input", json_text(input));
    json_object_update(row, json_array_get(top, 0));
    if (p->n_top > 1) json_object_set(row, "top", top);
    json_decref(top);
    if (p->c->o.logits) json_object_set_new(row, "logits", json_numbers(logits, p->n_classes));
    return json_array_append_new(p->rows, row) ? complain(EXIT_FAILED, "no memory left")
                                               : EXIT_DONE;
}

/* ---- the pictures ---- */

/* The next ones, filled up to a batch. */
static wf_status read_batch(prediction *p, wf_feed *feed_out) {
    const wf_batch *batch;
    size_t n_bytes = (size_t)p->batch * p->j.about.x_bytes;
    TRY(wf_loader_next(p->loader, &batch));
    *feed_out = (wf_feed){"x", batch->x, n_bytes};
    if (batch->x_bytes == n_bytes) return WF_OK;
    memset(p->x, 0, n_bytes);
    memcpy(p->x, batch->x, batch->x_bytes);
    feed_out->data = p->x;
    return WF_OK;
}

static exit_status predict_batch(prediction *p, int64_t first, int64_t n) {
    wf_feed feed;
    bool reads = p->loader != NULL;
    wf_status status = reads ? read_batch(p, &feed) : WF_OK;
    if (status == WF_OK)
        status =
            wf_trainer_forward(p->trainer, reads ? &feed : NULL, reads, p->batch, "logits",
                               p->logits, (size_t)(p->batch * p->n_classes) * sizeof *p->logits);
    exit_status bad = complain_of(p->c, status);
    for (int64_t i = 0; i < n && !bad; i++)
        bad = tell_one(p, first + i, p->logits + i * p->n_classes);
    return bad;
}

static exit_status predict_all(prediction *p) {
    exit_status bad = EXIT_DONE;
    int64_t n_all = p->j.about.n_test;
    for (int64_t first = 0; first < n_all && !bad; first += p->batch) {
        int64_t n_left = n_all - first;
        if ((bad = interrupt_status())) complain(bad, "interrupted");
        if (!bad) bad = predict_batch(p, first, n_left < p->batch ? n_left : p->batch);
    }
    return bad;
}

/* ---- before and after ---- */

static exit_status prepare(prediction *p) {
    cli *c = p->c;
    if (!c->o.init) return complain(EXIT_USAGE, "--init is missing: the weights to predict with");
    if (c->o.logits && !c->o.json)
        return complain(EXIT_USAGE, "--logits adds to the report; it needs --json FILE");
    TRY(report_check(c));
    if (c->o.csv) TRY(output_check("the table", c->o.csv));
    TRY(job_open(c, 0, &p->j));
    if (p->j.is_tokens)
        return complain(EXIT_USAGE, "--model %s reads text: weft generate goes on from one",
                        c->o.model);
    if (!p->j.about.n_test)
        return complain(EXIT_USAGE, "%s has no test images to predict", c->o.data);
    p->n_classes = p->j.about.n_classes;
    p->n_top = c->o.top_k && c->o.top_k < p->n_classes ? c->o.top_k : c->o.top_k ? p->n_classes : 1;
    p->batch = c->o.recipe.batch;
    p->x = calloc((size_t)p->batch, p->j.about.x_bytes);
    p->logits = calloc((size_t)(p->batch * p->n_classes), sizeof *p->logits);
    p->order = calloc((size_t)p->n_classes, sizeof *p->order);
    p->rows = json_array();
    if (!p->x || !p->logits || !p->order || !p->rows)
        return complain(EXIT_FAILED, "no memory left");
    if (c->o.csv) TRY(output_begin(&p->csv, c, "the table", c->o.csv));
    if (c->o.csv) fprintf(p->csv.stream, "input,class,probability\n");
    wf_status status = job_trainer(&p->j, &p->trainer);
    if (status == WF_OK) status = wf_trainer_prepare_eval(p->trainer, p->batch);
    if (status != WF_OK) return job_complain_of_eval(&p->j, status, "a smaller --batch needs less");
    status = wf_trainer_load_weights(p->trainer, c->o.init);
    if (status == WF_OK && job_reads_eval(&p->j))
        status = job_loader(&p->j, WF_DATA_TEST, 0, 0, &p->loader);
    return complain_of(c, status);
}

static exit_status finish(prediction *p) {
    cli *c = p->c;
    exit_status bad = c->o.csv ? output_end(&p->csv) : EXIT_DONE;
    exit_status written =
        report_write(c, json_pack("{s:O, s:o}", "rows", p->rows, "recipe", options_recipe(&c->o)));
    return bad ? bad : written;
}

exit_status run_predict(cli *c) {
    prediction p = {.c = c};
    bool done;
    interrupt_watch();
    exit_status bad = processes_begin(c, &done);
    if (bad || done) return bad;
    if (c->o.csv && !strcmp(c->o.csv, "-")) c->say = stderr;
    bad = prepare(&p);
    if (!bad) bad = predict_all(&p);
    if (!bad) bad = finish(&p);
    output_drop(&p.csv);
    json_decref(p.rows);
    wf_loader_destroy(p.loader);
    wf_trainer_destroy(p.trainer);
    job_close(&p.j);
    free(p.x);
    free(p.logits);
    free(p.order);
    return bad;
}
