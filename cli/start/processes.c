/* Ranks as processes: which of them this one is. */
#include "common/text.h"
#include "job/agree.h"
#include "restart/restart.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* Only rank 0 talks and writes files. */
static exit_status be_silent(cli *c) {
    options *o = &c->o;
    c->is_root = false;
    o->quiet = 1;
    free(o->json);
    free(o->csv);
    o->json = o->csv = NULL;
    return EXIT_DONE;
}

/* Another launcher that is killed leaves its ranks to themselves: they save and stop. Ranks that
 * were started by hand may outlive a login, and weft's own launcher ends its ranks itself. */
static void end_with_launcher(const wf_place *place) {
    static const char *const launchers[] = {"Open MPI", "PMI", "Slurm"};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (!strcmp(place->source, launchers[i])) prctl(PR_SET_PDEATHSIG, SIGTERM);
}

/* Processes divide the machine's cores by themselves; other devices each takes its own of the list.
 */
static bool names_cpus(const options *o) {
    const char *at = option_is_given(o, OPT_devices) ? o->devices : NULL;
    while (at && !strncmp(at, "cpu", 3)) {
        at = strchr(at, ',');
        if (!at) return true;
        at++;
    }
    return false;
}

exit_status processes_begin(cli *c, bool *done_out) {
    options *o = &c->o;
    wf_place place;
    *done_out = false;
    TRY(complain_of(c, wf_launch_place(c->ctx, &place)));
    TRY(roster_take(c));
    /* A job of one rank is a job, if somebody has started it. */
    bool is_mpi = o->wire && !strcmp(o->wire, "mpi") && c->command != FOR_PLAN;
    bool is_job = place.n_ranks > 1 || (is_mpi && *place.source);
    if (!is_job && o->rendezvous)
        return complain(EXIT_USAGE,
                        "--rendezvous %.200s: each process needs its rank from RANK and WORLD_SIZE "
                        "or another launcher's variables",
                        o->rendezvous);
    if (!is_job) {
        c->lost = NULL; /* no rank stays */
        if (is_mpi && c->command & JOBS)
            return complain(EXIT_USAGE, "--wire mpi needs ranks that MPI has started: mpirun -np N "
                                        "weft ..., without --ranks");
        if (o->wire && o->ranks == 1 && c->command & JOBS)
            return complain(EXIT_USAGE, "--wire has no effect here: there are no other processes");
        if (o->ranks == 1 && (!o->restarts || c->history)) return EXIT_DONE;
        if (names_cpus(o) && o->ranks > 1)
            return complain(EXIT_USAGE,
                            "--devices %.60s puts ranks on threads, --ranks %lld starts processes; "
                            "give one of them",
                            o->devices, (long long)o->ranks);
        *done_out = true;
        return launch_self(c);
    }
    if ((o->restarts || o->ranks_least) && !c->history) {
        option_id id = o->ranks_least ? OPT_ranks : OPT_restarts;
        char name[TEXT_BYTES], value[TEXT_BYTES];
        return complain(EXIT_USAGE,
                        "%s %s: these ranks were started by %s, and only their launcher "
                        "can start them again; use --ranks N, weft run --restarts N, or start the "
                        "job again with --resume",
                        option_name(name, id), option_text(o, id, value), place.source);
    }
    if (names_cpus(o))
        return complain(EXIT_USAGE,
                        "--devices %.60s puts ranks on threads, but this is rank %d of %d "
                        "processes (%s); each process takes one rank",
                        o->devices, place.rank, place.n_ranks, place.source);
    if (option_is_given(o, OPT_ranks) && o->ranks != place.n_ranks)
        return complain(EXIT_USAGE, "--ranks %lld, but by %s there are %d processes",
                        (long long)o->ranks, place.source, place.n_ranks);
    end_with_launcher(&place);
    wf_job_config meeting = WF_JOB_CONFIG_INIT;
    meeting.init = o->rendezvous ? o->rendezvous : "env://";
    /* From a list of wires to measure, a job uses one: shared memory, where there is any, unless it
     * is mpi. */
    bool is_wire = c->command & JOBS || is_mpi;
    if (is_wire) meeting.wire = o->wire;
    interrupt_unwatch(); /* there is nothing to lose, and the others may never come */
    if (interrupt_status() && c->history) return interrupt_status(); /* the launcher reports it */
    if (interrupt_status())
        return complain(interrupt_status(), "interrupted; no other rank had joined");
    wf_status status = wf_job_join(c->ctx, &meeting, &c->job);
    if (status == WF_INTERRUPTED) return complain(EXIT_RANK, "%s", wf_context_error(c->ctx));
    if (status != WF_OK) return complain_of(c, status);
    history_follow(c->history);
    TRY(agree_on_options(c));
    interrupt_watch();
    return place.rank ? be_silent(c) : EXIT_DONE;
}
