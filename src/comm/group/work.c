/* Works: operations that a thread of the group runs one after another. */
#include "comm/group/group.h"

#include <pthread.h>
#include <stdio.h>

struct wf_work {
    wfi_works *works;
    wfi_operation operation;
    struct wf_work *next;
    bool is_done; /* atomic access */
    wf_status status;
    char sentence[WFI_SENTENCE_BYTES];
};

struct wfi_works {
    wf_group *group;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t added, done;
    wf_work *first, *last; /* queued */
    bool is_busy, ends;
};

/* Runs one work; called without the lock. */
static void run(wfi_works *w, wf_work *work) {
    work->status = wfi_group_run(w->group, &work->operation);
    if (work->status != WF_OK)
        snprintf(work->sentence, sizeof work->sentence, "%s", wf_context_error(w->group->ctx));
}

static void *run_all(void *self) {
    wfi_works *w = self;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->ends) pthread_cond_wait(&w->added, &w->lock);
        wf_work *work = w->first;
        if (!work) break;
        w->first = work->next;
        if (!w->first) w->last = NULL;
        w->is_busy = true;
        pthread_mutex_unlock(&w->lock);
        run(w, work);
        pthread_mutex_lock(&w->lock);
        w->is_busy = false;
        __atomic_store_n(&work->is_done, true, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static wf_status create(wf_group *g) {
    wfi_works *w = wfi_alloc(g->ctx, 1, sizeof *w, "a group's works");
    if (!w) return WF_NO_MEMORY;
    w->group = g;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->added, NULL);
    pthread_cond_init(&w->done, NULL);
    if (pthread_create(&w->thread, NULL, run_all, w)) {
        wfi_free(g->ctx, w);
        return wfi_fail(g->ctx, WF_NO_MEMORY, "the system refused a thread for a group's works");
    }
    g->works = w;
    return WF_OK;
}

wf_status wfi_works_add(wf_group *g, const wfi_operation *operation, wf_work **work_out) {
    if (!g->works) WF_TRY(create(g));
    wfi_works *w = g->works;
    wf_work *work = wfi_alloc(g->ctx, 1, sizeof *work, "a work");
    if (!work) return WF_NO_MEMORY;
    work->works = w;
    work->operation = *operation;
    pthread_mutex_lock(&w->lock);
    if (w->last)
        w->last->next = work;
    else
        w->first = work;
    w->last = work;
    pthread_cond_signal(&w->added);
    pthread_mutex_unlock(&w->lock);
    *work_out = work;
    return WF_OK;
}

/* The wait ends because every operation has a deadline. */
void wfi_works_drain(wfi_works *w) {
    pthread_mutex_lock(&w->lock);
    while (w->first || w->is_busy) pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void wfi_works_destroy(wf_group *g) {
    wfi_works *w = g->works;
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_signal(&w->added);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->done);
    pthread_cond_destroy(&w->added);
    pthread_mutex_destroy(&w->lock);
    wfi_free(g->ctx, w);
}

wf_status wf_work_wait(wf_work *work) {
    if (!work) return WF_INVALID_ARG;
    wfi_works *w = work->works;
    pthread_mutex_lock(&w->lock);
    while (!work->is_done) pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
    wf_context *ctx = w->group->ctx;
    wf_status status = work->status;
    if (status != WF_OK) status = wfi_fail(ctx, status, "%s", work->sentence);
    wfi_free(ctx, work);
    return status;
}

int wf_work_is_done(const wf_work *work) {
    return __atomic_load_n(&work->is_done, __ATOMIC_ACQUIRE);
}
