/* weft plan: what a plan costs, before anything runs. */
#include "checkpoint.h"
#include "draw/timeline_report.h"
#include "job.h"
#include "mesh.h"
#include "progress.h"
#include "report.h"
#include "text.h"
#include "tuned.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MISSING_BYTES 400

/* What of the peak lies between blocks: of it less what may be alive at once. */
static double fragmentation_of(const wf_rank_summary *r) {
    return r->peak_bytes ? 1 - (double)r->bound_bytes / (double)r->peak_bytes : 0;
}

static double worst_fragmentation(const wf_program *p) {
    double worst = 0;
    for (int rank = 0; rank < wf_program_n_ranks(p); rank++) {
        wf_rank_summary r = wf_program_rank(p, rank);
        worst = fmax(worst, fragmentation_of(&r));
    }
    return worst;
}

static void say_rank(const cli *c, const wf_program *p, int rank, const wf_unit_summary *units) {
    wf_rank_summary r = wf_program_rank(p, rank);
    char n[TEXT_BYTES], peak[TEXT_BYTES], bound[TEXT_BYTES], state[TEXT_BYTES];
    char sent[TEXT_BYTES], received[TEXT_BYTES];
    say(c, "\nrank %d: %s parameters, %d instructions\n", rank,
        text_of_count(n, (double)r.n_parameters), r.n_instructions);
    say(c, "  %-14s %12s %14s %14s %16s %12s\n", "unit", "parameters", "forward FLOP",
        "backward FLOP", "activations", costs_text(p));
    for (int u = 0; u < r.n_units; u++) {
        wf_unit_summary s = units[u];
        char params[TEXT_BYTES], forward[TEXT_BYTES], backward[TEXT_BYTES], kept[TEXT_BYTES];
        say(c, "  %-14s %12s %14s %14s %16s %9.2f ms\n", s.name,
            text_of_count(params, (double)s.n_parameters), text_of_count(forward, s.forward_flops),
            text_of_count(backward, s.backward_flops),
            text_of_bytes(kept, (double)s.activation_bytes),
            (s.forward_us + s.recompute_us + s.backward_us + s.weight_us) / 1e3);
    }
    say(c,
        "  peak %s in unit %s; alive at once at most %s (%.1f %% lies between blocks); parameters "
        "and state %s\n",
        text_of_bytes(peak, (double)r.peak_bytes), r.peak_unit,
        text_of_bytes(bound, (double)r.bound_bytes), 100 * fragmentation_of(&r),
        text_of_bytes(state, (double)r.state_bytes));
    if (r.host_peak_bytes || r.disk_peak_bytes)
        say(c, "  elsewhere %s on the host and %s on disk; fetches %s and evicts %s a step\n",
            text_of_bytes(peak, (double)r.host_peak_bytes),
            text_of_bytes(bound, (double)r.disk_peak_bytes),
            text_of_bytes(sent, (double)r.fetched_bytes),
            text_of_bytes(received, (double)r.evicted_bytes));
    if (c->o.save_async)
        say(c, "  a save in the background copies %s of it to the host's memory, beside the peak\n",
            text_of_bytes(peak, (double)wf_program_save_bytes(p, rank)));
    if (wf_program_n_ranks(p) > 1)
        say(c, "  sends %s and receives %s a step\n", text_of_bytes(sent, (double)r.sent_bytes),
            text_of_bytes(received, (double)r.received_bytes));
}

/* Side by side: where the work is divided unevenly, it shows. */
static void say_ranks(const cli *c, const wf_program *p) {
    say(c, "\n%4s %12s %12s %12s %12s %12s %12s\n", "rank", "held", "optimizer", "copied", "peak",
        "sends", "receives");
    for (int rank = 0; rank < wf_program_n_ranks(p); rank++) {
        wf_rank_summary r = wf_program_rank(p, rank);
        char held[TEXT_BYTES], optimizer[TEXT_BYTES], copied[TEXT_BYTES], peak[TEXT_BYTES];
        char sent[TEXT_BYTES], received[TEXT_BYTES];
        say(c, "%4d %12s %12s %12s %12s %12s %12s\n", rank,
            text_of_bytes(held, (double)(r.state_bytes - r.optimizer_bytes)),
            text_of_bytes(optimizer, (double)r.optimizer_bytes),
            text_of_bytes(copied, (double)r.copied_bytes),
            text_of_bytes(peak, (double)r.peak_bytes), text_of_bytes(sent, (double)r.sent_bytes),
            text_of_bytes(received, (double)r.received_bytes));
    }
}

static json_t *rank_json(const job *j, const wf_program *p, int rank,
                         const wf_unit_summary *units) {
    wf_rank_summary r = wf_program_rank(p, rank);
    json_t *all = json_array();
    char device[WF_DEVICE_NAME_BYTES];
    for (int u = 0; u < r.n_units; u++) {
        wf_unit_summary s = units[u];
        json_array_append_new(
            all,
            json_pack("{s:s, s:I, s:f, s:f, s:I, s:f, s:f, s:f, s:f}", "name", s.name, "parameters",
                      (json_int_t)s.n_parameters, "forward_flops", s.forward_flops,
                      "backward_flops", s.backward_flops, "activation_bytes",
                      (json_int_t)s.activation_bytes, "forward_us", s.forward_us, "backward_us",
                      s.backward_us, "weight_us", s.weight_us, "recompute_us", s.recompute_us));
    }
    json_t *json = json_pack(
        "{s:s, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:o}",
        "device", job_device(j, rank, device), "parameters", (json_int_t)r.n_parameters,
        "peak_bytes", (json_int_t)r.peak_bytes, "bound_bytes", (json_int_t)r.bound_bytes,
        "fragmentation", fragmentation_of(&r), "state_bytes", (json_int_t)r.state_bytes,
        "optimizer_bytes", (json_int_t)r.optimizer_bytes, "copied_bytes",
        (json_int_t)r.copied_bytes, "sent_bytes", (json_int_t)r.sent_bytes, "received_bytes",
        (json_int_t)r.received_bytes, "host_peak_bytes", (json_int_t)r.host_peak_bytes,
        "disk_peak_bytes", (json_int_t)r.disk_peak_bytes, "fetched_bytes",
        (json_int_t)r.fetched_bytes, "evicted_bytes", (json_int_t)r.evicted_bytes, "peak_unit",
        r.peak_unit, "instructions", r.n_instructions, "units", all);
    if (j->c->o.save_async)
        json_object_set_new(json, "save_bytes",
                            json_integer((json_int_t)wf_program_save_bytes(p, rank)));
    return json;
}

/* ---- what would fit ---- */

/* Fills "proposals" and, with their plans' texts, "would_fit". */
static exit_status check_fits(const job *j, const wf_program *p, json_t *proposals,
                              json_t *would_fit) {
    wf_proposal *found;
    int n;
    progress waiting;
    progress_wait(j->c, &waiting);
    wf_status status = wf_program_fits(p, j->c->o.device_memory, j->c->o.host_memory, &found, &n);
    progress_wait_end(j->c);
    exit_status bad = complain_of(j->c, status);
    for (int k = 0; k < n; k++) {
        json_array_append_new(would_fit, json_string(found[k].plan));
        json_array_append_new(
            proposals,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "plan", found[k].plan, "micro",
                      (json_int_t)found[k].n_micro, "lanes", (json_int_t)found[k].n_lanes, "slices",
                      (json_int_t)found[k].n_slices, "peak_bytes", (json_int_t)found[k].peak_bytes,
                      "step_ms", found[k].step_us / 1e3));
    }
    if (bad == EXIT_DOES_NOT_FIT) would_fit_say(found, n);
    wf_proposals_destroy(j->c->ctx, found, n);
    return bad;
}

/* ---- the command ---- */

/* Of devices that the list names, and that this machine does not have, what is missing; or "". */
static const char *find_missing(const job *j, char why[MISSING_BYTES]) {
    char kind[WF_DEVICE_NAME_BYTES];
    *why = 0;
    for (int r = 0; j->c->o.devices && r < wf_plan_n_ranks(j->plan) && !*why; r++) {
        job_device(j, r, kind);
        kind[strcspn(kind, ":")] = 0;
        if (wf_info_devices(j->c->ctx, kind, why, MISSING_BYTES) == WF_UNSUPPORTED)
            snprintf(why, MISSING_BYTES, "%s", wf_context_error(j->c->ctx));
        else
            *why = 0; /* or it is a CPU */
    }
    return why;
}

static void say_missing(const cli *c, const char *missing) {
    if (*missing)
        say(c,
            "devices not on this machine (%s): planned with weft's own kernels; those of libraries "
            "may need other memory to work in%s\n",
            missing,
            c->o.device_memory ? ""
                               : "; what a device has is not known, --device-memory SIZE says it");
}

/* Lanes and slices that the plan needs beyond the recipe's own; null: none. */
static json_t *needed_json(const job *j) {
    const wf_recipe *r = &j->needed;
    json_t *needed = r->n_lanes || r->n_slices ? json_object() : json_null();
    if (r->n_lanes) json_object_set_new(needed, "lanes", json_integer((json_int_t)r->n_lanes));
    if (r->n_slices) json_object_set_new(needed, "slices", json_integer((json_int_t)r->n_slices));
    return needed;
}

/* Says all ranks, and appends them to `ranks`. */
static exit_status report_ranks(const job *j, const wf_program *p, json_t *ranks) {
    int n_ranks = wf_program_n_ranks(p), most = 1;
    for (int r = 0; r < n_ranks; r++)
        if (wf_program_rank(p, r).n_units > most) most = wf_program_rank(p, r).n_units;
    wf_unit_summary *units = calloc((size_t)most, sizeof *units);
    for (int r = 0; r < n_ranks && units; r++) {
        (void)wf_program_units(p, r, 0, most, units);
        say_rank(j->c, p, r, units);
        json_array_append_new(ranks, rank_json(j, p, r, units));
    }
    exit_status bad = units ? EXIT_DONE : complain(EXIT_FAILED, "no memory left");
    free(units);
    return bad;
}

static exit_status show(cli *c, const job *j, const wf_program *p) {
    json_t *ranks = json_array(), *would_fit = json_array(), *proposals = json_array();
    char *text = NULL, flops[TEXT_BYTES], sent[TEXT_BYTES], why[MISSING_BYTES];
    const char *missing = find_missing(j, why);
    wf_dry_run run;
    wf_status status = wf_program_dry_run(p, &run);
    if (status == WF_OK && c->o.program) status = wf_program_text(p, &text);
    if (status != WF_OK) {
        json_decref(ranks);
        json_decref(would_fit);
        json_decref(proposals);
        return complain_of(c, status);
    }
    wf_program_warn(p);
    tuned_warn(c, p);
    job_describe_chosen(j, p);
    say_missing(c, missing);
    if (wf_program_n_ranks(p) > 1) mesh_say(c, j->plan);
    exit_status listed = report_ranks(j, p, ranks);
    if (wf_program_n_ranks(p) > 1) say_ranks(c, p);
    say(c, "\none step: %s FLOP, %s between ranks\n", text_of_count(flops, run.flops),
        text_of_bytes(sent, (double)run.sent_bytes));
    if (text) say(c, "\n%s", text);
    exit_status fits = check_fits(j, p, proposals, would_fit);
    json_t *report = json_pack(
        "{s:s, s:s, s:s, s:o, s:o, s:o, s:b, s:o, s:o, s:f, s:f, s:I}", "weft", WEFT_VERSION,
        "costs", costs_text(p), "plan", wf_program_plan(p), "recipe", options_recipe(&c->o), "mesh",
        mesh_json(j->plan), "ranks", ranks, "fits", fits == EXIT_DONE, "would_fit", would_fit,
        "proposals", proposals, "fragmentation", worst_fragmentation(p), "flops", run.flops,
        "sent_bytes", (json_int_t)run.sent_bytes);
    size_t memory = c->o.device_memory;
    json_object_set_new(report, "device_memory",
                        memory ? json_integer((json_int_t)memory) : json_null());
    json_object_set_new(report, "recipe_needed", needed_json(j));
    if (*missing) json_object_set_new(report, "missing_devices", json_string(missing));
    if (text) json_object_set_new(report, "program", json_string(text));
    wf_text_free(c->ctx, text);
    exit_status drawn = timeline_plan(c, j->plan, p, report), written = report_write(c, report);
    return listed ? listed : fits ? fits : drawn ? drawn : written;
}

/* Devices that are not the plan's. Other options of weft train are taken and change nothing
 * here; a plan may also have more ranks than this machine could run. */
static exit_status check_ranks(const job *j) {
    const options *o = &j->c->o;
    int n_ranks = wf_plan_n_ranks(j->plan);
    int n_devices = n_ranks;
    wf_status status = o->devices ? wf_devices_count(j->c->ctx, o->devices, &n_devices) : WF_OK;
    if (status != WF_OK) return complain_of(j->c, status);
    if (n_devices != n_ranks)
        return complain(EXIT_USAGE, "--devices %.60s: the plan %s has %d rank%s", o->devices,
                        wf_plan_text(j->plan), n_ranks, n_ranks == 1 ? "" : "s");
    if (o->ranks != 1 && o->ranks != n_ranks)
        return complain(EXIT_USAGE, "--ranks %lld: the plan %s has %d rank%s", (long long)o->ranks,
                        wf_plan_text(j->plan), n_ranks, n_ranks == 1 ? "" : "s");
    return EXIT_DONE;
}

exit_status run_plan(cli *c) {
    job j;
    resumed from;
    progress waiting;
    wf_program *p = NULL;
    exit_status bad = c->o.draw ? draw_check(c->o.draw) : EXIT_DONE;
    if (!bad && c->o.resume) bad = checkpoint_read(c, EXIT_DONE, &from);
    if (!bad) bad = job_open(c, -1, &j);
    if (bad) return bad;
    bad = check_ranks(&j);
    if (bad) {
        job_close(&j);
        return bad;
    }
    job_describe(&j);
    progress_wait(c, &waiting);
    wf_status status =
        wf_program_create(c->ctx, j.model, &c->o.recipe, j.plan, WF_PROGRAM_TRAIN, &p);
    if (status == WF_OK) status = job_plan_tests(&j, p);
    progress_wait_end(c);
    bad = status == WF_OK ? show(c, &j, p) : complain_of(c, status);
    wf_program_destroy(p);
    job_close(&j);
    return bad;
}
