/* The memory of snapshots. A kill may come between any two stores, so a record is complete before
 * it has its step, and it counts only with a whole image of the same step. */
#include "restart/snapshot.h"

#include "common/record.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC        UINT64_C(0x77656674736E6170)
#define RECORD_BYTES ((size_t)1 << 18)
#define NONE         (-1)

/* Places in the memory, which is sparse: only written pages exist. */
#define STEPS_AT    ((off_t)1 << 30)
#define IMAGE_AT(k) ((off_t)((k) + 1) << 41)
#define ALL_BYTES   ((off_t)3 << 41)

typedef struct shared {
    uint64_t magic;
    uint64_t image_bytes; /* that have been allocated for each image */
    int64_t steps[2];     /* atomic access: of the records */
    char records[2][RECORD_BYTES];
} shared;

typedef struct step_numbers {
    double loss, ms, items;
    int64_t n_skipped;
} step_numbers;

struct snapshot {
    int fd;
    shared *shared;
    void *images[2];
    size_t bytes; /* of each; 0: not mapped yet */
};

/* ---- life ---- */

static snapshot *map(int fd) {
    snapshot *s = calloc(1, sizeof *s);
    void *at = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s && at != MAP_FAILED) {
        s->fd = fd;
        s->shared = at;
        return s;
    }
    if (at != MAP_FAILED) munmap(at, sizeof(shared));
    free(s);
    return NULL;
}

snapshot *snapshot_create(int *fd_out) {
    int low = memfd_create("weft-snapshot", MFD_CLOEXEC);
    *fd_out = low < 0 ? -1 : fcntl(low, F_DUPFD, 3); /* ranks inherit this one */
    if (low >= 0) close(low);
    snapshot *s = *fd_out >= 0 && !ftruncate(*fd_out, ALL_BYTES) ? map(*fd_out) : NULL;
    if (!s && *fd_out >= 0) close(*fd_out);
    if (!s) return NULL;
    s->shared->steps[0] = s->shared->steps[1] = NONE;
    s->shared->magic = MAGIC;
    return s;
}

/* The descriptor may be closed, or be of another file. */
snapshot *snapshot_find(void) {
    struct stat about;
    int fd = restart_descriptor(SNAPSHOT_ENV);
    if (fstat(fd, &about) || !S_ISREG(about.st_mode) || about.st_size != ALL_BYTES) return NULL;
    snapshot *s = map(fd);
    if (s && s->shared->magic == MAGIC) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        return s;
    }
    snapshot_release(s);
    return NULL;
}

void snapshot_release(snapshot *s) {
    if (!s) return;
    for (int k = 0; k < 2 && s->bytes; k++)
        if (s->images[k] != MAP_FAILED) munmap(s->images[k], s->bytes);
    munmap(s->shared, sizeof *s->shared);
    free(s);
}

/* Without it, a page that cannot be had would end the process. */
static bool allocate(snapshot *s) {
    if (s->shared->image_bytes == s->bytes) return true;
    for (int k = 0; k < 2; k++)
        if (fallocate(s->fd, 0, IMAGE_AT(k), (off_t)s->bytes)) return false;
    s->shared->image_bytes = s->bytes;
    return true;
}

exit_status snapshot_open(cli *c, const wf_program *program) {
    snapshot *s = c->snapshot;
    char text[TEXT_BYTES];
    TRY(complain_of(c, snapshot_check_room(c, program)));
    s->bytes = wf_program_image_bytes(program);
    for (int k = 0; k < 2; k++)
        s->images[k] = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, IMAGE_AT(k));
    bool good = s->images[0] != MAP_FAILED && s->images[1] != MAP_FAILED;
    if (good && (!c->is_root || allocate(s))) return EXIT_DONE;
    return complain(EXIT_FAILED, "--snapshot: %s of host memory are refused: %s",
                    text_of_bytes(text, 2 * (double)s->bytes), strerror(errno));
}

/* ---- writing and reading ---- */

static int64_t step_of(const snapshot *s, int k) {
    int64_t step = __atomic_load_n(&s->shared->steps[k], __ATOMIC_ACQUIRE);
    const void *head = s->images[k];
    if (step < 0 || !s->shared->image_bytes) return NONE;
    if (s->bytes) return wf_image_step(head) == step ? step : NONE;
    /* Before the program is known, all of the image's head is mapped. */
    void *at = mmap(NULL, s->shared->image_bytes, PROT_READ, MAP_SHARED, s->fd, IMAGE_AT(k));
    if (at == MAP_FAILED) return NONE;
    int64_t whole = wf_image_step(at);
    munmap(at, s->shared->image_bytes);
    return whole == step ? step : NONE;
}

int64_t snapshot_newest(const snapshot *s, int *image_out) {
    int64_t first = s ? step_of(s, 0) : NONE, second = s ? step_of(s, 1) : NONE;
    *image_out = first < 0 && second < 0 ? 0 : first > second ? 1 : 2;
    return first > second ? first : second;
}

static void forget_image(const snapshot *s, int k) {
    __atomic_store_n((uint64_t *)s->images[k], 0, __ATOMIC_SEQ_CST);
}

wf_status snapshot_write(snapshot *s, wf_trainer *trainer, const char *notes, int64_t n_done) {
    int newest;
    (void)snapshot_newest(s, &newest); /* the same on all ranks: all have written it */
    int k = newest == 1;
    if (notes) {
        forget_image(s, k); /* it may be of the same step, before that was repeated */
        __atomic_store_n(&s->shared->steps[k], NONE, __ATOMIC_SEQ_CST);
        snprintf(s->shared->records[k], RECORD_BYTES, "%s", notes);
        __atomic_store_n(&s->shared->steps[k], n_done, __ATOMIC_SEQ_CST);
    }
    return wf_trainer_write_image(trainer, s->images[k], s->bytes);
}

const char *snapshot_record(const snapshot *s, int image) {
    return s->shared->records[image - 1];
}

wf_status snapshot_read(snapshot *s, wf_trainer *trainer, int image) {
    return wf_trainer_read_image(trainer, s->images[image - 1], s->bytes);
}

void snapshot_forget(snapshot *s, int image) {
    __atomic_store_n(&s->shared->steps[image - 1], NONE, __ATOMIC_SEQ_CST);
    if (s->bytes) forget_image(s, image - 1);
}

/* ---- the steps ---- */

static off_t place_of(int64_t n_done) {
    return STEPS_AT + (off_t)n_done * (off_t)sizeof(step_numbers);
}

void snapshot_add_step(const snapshot *s, int64_t n_done, double loss, double ms, double items,
                       int64_t n_skipped) {
    const step_numbers now = {loss, ms, items, n_skipped};
    if (s) (void)!pwrite(s->fd, &now, sizeof now, place_of(n_done));
}

bool snapshot_read_steps(const snapshot *s, int64_t first, int64_t last, record *r) {
    for (int64_t n = first + 1; n <= last; n++) {
        step_numbers now = {NAN, NAN, 0, 0};
        (void)!pread(s->fd, &now, sizeof now, place_of(n));
        if (!record_add(r, now.loss, now.ms, now.items)) return false;
        r->n_skipped += now.n_skipped;
    }
    return true;
}

/* ---- cost ---- */

size_t snapshot_bytes(const wf_program *program) {
    return 2 * wf_program_image_bytes(program);
}

wf_status snapshot_check_room(const cli *c, const wf_program *program) {
    size_t n_ranks = (size_t)wf_program_n_ranks(program);
    size_t share = !c->o.snapshot ? 0 : (snapshot_bytes(program) + n_ranks - 1) / n_ranks;
    char why[200];
    for (int rank = 0; rank < (int)n_ranks && c->o.host_memory; rank++) {
        size_t other = wf_program_rank(program, rank).host_peak_bytes;
        if (c->o.on_nan == ON_NAN_SKIP) other += wf_program_undo_bytes(program, rank);
        if (share + other <= c->o.host_memory) continue;
        snprintf(
            why, sizeof why,
            "rank %d needs %zu bytes of host memory, with its copies of the state for --on-nan "
            "skip and --snapshot; the limit is %zu",
            rank, share + other, c->o.host_memory);
        return wf_context_fail(c->ctx, WF_DOES_NOT_FIT, why);
    }
    return WF_OK;
}
