/* weft eval: loss and accuracy of saved weights. */
#include "job/report.h"

#include <math.h>

static exit_status evaluate(cli *c, const job *j, wf_trainer *trainer) {
    double loss, accuracy;
    wf_data_split split = j->about.n_test ? WF_DATA_TEST : WF_DATA_TRAIN;
    wf_status status = wf_trainer_load_weights(trainer, c->o.init);
    if (status == WF_OK) status = job_eval(j, trainer, split, &loss, &accuracy);
    if (status == WF_INTERRUPTED) return complain(interrupt_agreed(c), "interrupted");
    if (status == WF_NOT_FINITE)
        return complain(EXIT_FAILED, "%s: %s", c->o.init, wf_context_error(c->ctx));
    if (status != WF_OK) return complain_of(c, status);
    say(c, "%s split: loss %.4f", split == WF_DATA_TEST ? "test" : "training", loss);
    if (isfinite(accuracy)) say(c, ", accuracy %.2f %%", 100 * accuracy);
    if (j->is_tokens) say(c, ", perplexity %.2f", exp(loss));
    say(c, "\n");
    json_t *report = json_pack("{s:s, s:o, s:o, s:o}", "split",
                               split == WF_DATA_TEST ? "test" : "train", "loss", json_number(loss),
                               "accuracy", json_number(accuracy), "recipe", options_recipe(&c->o));
    if (j->is_tokens) json_object_set_new(report, "perplexity", json_number(exp(loss)));
    return report_write(c, report);
}

exit_status run_eval(cli *c) {
    job j;
    wf_trainer *trainer = NULL;
    bool done;
    interrupt_watch();
    exit_status bad = processes_begin(c, &done);
    if (bad || done) return bad;
    if (!c->o.init) return complain(EXIT_USAGE, "--init is missing: the weights to evaluate");
    TRY(report_check(c));
    TRY(job_open(c, 0, &j));
    wf_status status = job_trainer(&j, &trainer);
    if (status == WF_OK)
        status = job_prepare_eval(&j, trainer, j.about.n_test ? WF_DATA_TEST : WF_DATA_TRAIN);
    bad = status == WF_OK ? evaluate(c, &j, trainer)
                          : job_complain_of_eval(&j, status, "a smaller --batch needs less");
    wf_trainer_destroy(trainer);
    job_close(&j);
    return bad;
}
