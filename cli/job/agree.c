#include "job/agree.h"
#include "common/text.h"

#include <stdlib.h>
#include <string.h>

/* Settings and the memory of their texts. */
typedef struct settings {
    wf_setting of[N_OPTIONS + 8];
    char name[N_OPTIONS + 8][TEXT_BYTES], value[N_OPTIONS + 8][TEXT_BYTES];
    int n;
} settings;

static void add(settings *s, const char *name, const char *value) {
    s->of[s->n++] = (wf_setting){name, value};
}

static void add_number(settings *s, const char *name, int64_t number) {
    snprintf(s->value[s->n], TEXT_BYTES, "%lld", (long long)number);
    add(s, name, s->value[s->n]);
}

static exit_status compare(const cli *c, const settings *s) {
    return complain_of(c, wf_job_compare(c->job, s->of, s->n));
}

/* "" for one that is not given and has no default; so --steps 0 is another than none. */
static const char *value_of(const options *o, option_id id, char *text) {
    const option about = option_about(id);
    if (!option_is_given(o, id) && !option_default(id, text)) return "";
    const char *value = option_text(o, id, text);
    if (about.scope == OF_ROOT) return *value ? "true" : "";
    if (about.kind == OPTION_FLAG) return strcmp(value, "true") ? "" : value;
    return value;
}

exit_status agree_on_options(const cli *c) {
    settings *s = c->job ? calloc(1, sizeof *s) : NULL;
    if (!c->job) return EXIT_DONE;
    if (!s) return complain(EXIT_FAILED, "no memory left");
    for (const command *about = commands; about->name; about++)
        if (about->flag == c->command) add(s, "the command", about->name);
    for (option_id id = 0; id < N_OPTIONS; id++) {
        const option about = option_about(id);
        if (!(about.commands & c->command) || about.scope == OF_RANK) continue;
        if (id == OPT_data) continue; /* its contents count: agree_on_data */
        option_name(s->name[s->n], id);
        add(s, s->name[s->n], value_of(&c->o, id, s->value[s->n]));
    }
    exit_status bad = compare(c, s);
    free(s);
    return bad;
}

exit_status agree_on_data(job *j) {
    settings s = {.n = 0};
    if (!j->c->job) return EXIT_DONE;
    TRY(complain_of(j->c, job_hash_data(j)));
    add(&s, "--data whose samples have the hash", j->data_hash);
    add_number(&s, "training samples:", j->about.n_train);
    add_number(&s, "test samples:", j->about.n_test);
    return compare(j->c, &s);
}

exit_status agree_on_place(const job *j, int64_t n_steps, int64_t epoch, int64_t sample) {
    settings s = {.n = 0};
    if (!j->c->job) return EXIT_DONE;
    add_number(&s, "steps in an epoch:", j->n_epoch);
    add_number(&s, "steps in all:", j->n_steps);
    add_number(&s, "steps already made:", n_steps);
    add_number(&s, "epoch", epoch);
    add_number(&s, "sample", sample);
    return compare(j->c, &s);
}

exit_status agree_on_text(const cli *c, exit_status bad, char **text) {
    if (!c->job) return bad;
    int64_t head[2] = {bad, *text ? (int64_t)strlen(*text) + 1 : 0};
    TRY(complain_of(c, wf_job_broadcast(c->job, head, sizeof head)));
    if (head[0] && !c->is_root)
        complain((exit_status)head[0],
                 "rank 0 cannot start from the files that it reads; its own message gives the "
                 "reason");
    if (head[0]) return (exit_status)head[0];
    if (!c->is_root && !(*text = malloc((size_t)head[1])))
        return complain(EXIT_FAILED, "no memory left");
    return complain_of(c, wf_job_broadcast(c->job, *text, (size_t)head[1]));
}
