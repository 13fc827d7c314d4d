/* A job: the options, turned into data, model, plan and resolved recipe. */
#pragma once

#include "job/about.h"

typedef struct job {
    cli *c;
    saved_model saved;       /* the metadata of its first weights */
    wf_tokenizer *tokenizer; /* of --tokenizer or of the weights; or NULL */
    wf_data *data;
    wf_data_description about;
    wf_model *model;
    wf_plan *plan;
    wf_proposal *would_fit; /* [n_would_fit]: the candidates of --plan auto */
    int n_would_fit;
    char data_hash[WF_DATA_HASH_BYTES]; /* "" until job_hash_data */
    bool is_tokens;                     /* the model reads tokens */
    bool is_recurrent;                  /* and goes on with them from batch to batch */
    bool is_default_plan;               /* none was given for several ranks */
    bool drop_last;  /* the smaller batch at an epoch's end cannot be divided into microbatches */
    int64_t n_epoch; /* steps in an epoch */
    int64_t n_steps; /* in the whole run */
    wf_cluster *cluster;                 /* of --cluster; or NULL */
    wf_choice choices[WF_MAX_PROPOSALS]; /* [n_choices] plans that a search on it has found */
    int n_choices;
    struct job_list *list; /* of plans that may replace the first; or NULL */
    wf_recipe given;       /* the recipe of that search */
    wf_recipe needed; /* weft plan: micro, lanes and slices that are not the recipe's own; or 0 */
} job;

/* Fills *j and resolves c->o: options that are 0 or not given get their values. `n_steps` < 0: from
 * --steps and --epochs. Complains and returns the exit status if that is impossible. */
exit_status job_open(cli *c, int64_t n_steps, job *j);
void job_close(job *j);
/* Whether --model names one of the registry. Complains. */
exit_status job_check_model(const cli *c);
/* Sizes of a model of tokens: those of options, of which 0 is the model's. */
void job_take_sizes(const options *o, wf_model_config *config);
/* Without a cap of the user's, each rank gets its part of the control group's limit, if there is
 * one and all ranks are in the group. */
exit_status job_cap_memory(cli *c, const wf_plan *plan);
/* Prints that limit and its reason, if there is one. */
void job_say_cap(const cli *c);
/* Sets the plan's devices from the options: their kind, and their memory. */
wf_status job_use_devices(const cli *c, wf_plan *plan);

/* The recipe of a single step: how the learning rate falls, and how many steps there are, is not
 * known while a plan or --micro is chosen. */
wf_recipe job_recipe_of_a_step(const job *j);
/* Resolves the recipe's open fields. Training needs lanes and slices that suit the plan; weft plan,
 * which runs nothing, takes those that the plan needs; forward runs need none. */
wf_status job_resolve(const job *j, wf_recipe *recipe);
/* Resolves the job's recipe, with the number of steps; `n_steps` as in job_open. */
wf_status job_resolve_steps(job *j, int64_t n_steps);

/* plan_auto.c: replaces j->plan; where nothing fits, j->would_fit has proposals. Errors:
 * DOES_NOT_FIT; INVALID_ARG: no plan for so many ranks suits the recipe. */
wf_status job_choose_plan(job *j);

/* choose.c: loads --cluster with --nodes, if given. Complains. */
exit_status job_open_cluster(job *j);
/* Takes the plan of --plan auto, with microbatches, lanes and slices that are not given. Errors:
 * those of wf_cluster_search. */
wf_status job_choose_on_cluster(job *j);
void job_end_list(job *j);
/* Returns whether another choice of --plan auto replaces the plan, as that is refused or its
 * program does not fit. The program is then destroyed. *status becomes that of the new recipe. */
bool job_take_another(job *j, wf_status *status, wf_program **program);
/* A request for the job's model and recipe on the job's cluster; and within the memory that options
 * give. */
wf_prediction_request job_request(const job *j);
wf_prediction_request job_request_within(const job *j);
/* Returns whether it takes about a second to lower a plan of so many ranks, each replica of which
 * has n_each microbatches. */
bool job_is_large(const job *j, int n_ranks, int64_t n_each);
/* Microbatches, lanes and slices that the plan needs beyond the recipe's own; null: none. */
json_t *job_needed_json(const job *j);

/* Measures for --micro auto and --costs measured: chooses the former, gives the plan the latter.
 * Complains and returns the exit status if that is impossible. */
exit_status job_measure(job *j);

/* Fills j->data_hash, once. */
wf_status job_hash_data(job *j);

/* The name of the rank's device. */
const char *job_device(const job *j, int rank, char name[WF_DEVICE_NAME_BYTES]);

/* Prints the first lines of a run: the model, the data, the plan, and how to repeat it. */
void job_describe(const job *j);
/* The plan that auto has made of it, if that is another. */
void job_describe_chosen(const job *j, const wf_program *program);

wf_status job_loader(const job *j, wf_data_split split, int64_t first_epoch, int64_t first_sample,
                     wf_loader **loader_out);
/* The training data of part `part` of `n_parts` of each batch. */
wf_status job_part_loader(const job *j, int64_t first_epoch, int64_t first_sample, int n_parts,
                          int part, wf_loader **loader_out);
/* Lists the inputs of a batch, fewer than WF_WORKER_MAX_FEEDS. Returns their number. */
int job_feeds(const wf_batch *batch, wf_feed *feeds);
wf_trainer_config job_trainer_config(const job *j);
/* Adds the model's metadata to the files that the trainer writes. */
wf_status job_describe_trainer(const job *j, wf_trainer *trainer);
wf_status job_trainer(const job *j, wf_trainer **trainer_out);

/* Into how many streams a recurrent model's text is divided, by split: as many as a batch has; for
 * an evaluation PyTorch's word_language_model has ten. Otherwise 0. */
void job_find_streams(const job *j, int64_t n_streams_out[2]);
/* An evaluation takes as many samples at once as a microbatch has, or all there are; of streams,
 * one of each. */
int64_t job_eval_samples(const job *j, wf_data_split split);
/* Plans the evaluation together with the program's step: peaks and proposals then include it. */
wf_status job_plan_tests(const job *j, wf_program *program);
/* The first replica evaluates; processes of the others have nothing to read. */
bool job_reads_eval(const job *j);
/* Plans the memory of job_eval on that split, if it has samples. Errors: DOES_NOT_FIT. */
wf_status job_prepare_eval(const job *j, wf_trainer *trainer, wf_data_split split);
#define JOB_EVAL_ADVICE "that is for testing; a higher --micro makes it smaller"
/* Like complain_of; of a training that does not fit, with the plans that would. */
exit_status job_complain_of_plan(const job *j, wf_status status);
/* Prints the proposals of wf_program_fits, a line each; `to_stderr`: as a part of the error. */
void would_fit_say(const cli *c, const wf_proposal *found, int n, bool to_stderr);
/* Adds "fits", "proposals" and, with their plans' texts, "would_fit". */
void would_fit_report(json_t *report, bool fits, const wf_proposal *found, int n);
/* Like complain_of, but with `advice` where an evaluation does not fit. */
exit_status job_complain_of_eval(const job *j, wf_status status, const char *advice);

/* A step, which may tell c->stop. */
wf_status job_step(const job *j, wf_trainer *trainer, const wf_batch *batch,
                   wf_step_result *result_out);

/* Forward over the whole split: mean loss and share of hits (NAN without labels).
 * Errors: INTERRUPTED; those of the trainer. */
wf_status job_eval(const job *j, wf_trainer *trainer, wf_data_split split, double *loss_out,
                   double *accuracy_out);

/* Samples, or tokens, of `n_samples` samples. */
double job_items(const job *j, int64_t n_samples);
