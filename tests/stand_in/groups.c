/* Groups of a kernel's threads, on one thread of the host's: each thread of a group has a stack,
 * and goes on where it was when all others have come to the barrier. They run in one order up to a
 * barrier and in the other behind it, so that what depends on an order is seen. */
#include "stand_in.h"

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define STACK_BYTES ((size_t)128 << 10)

/* ---- stacks ---- */

#if defined(__x86_64__)
typedef void *place; /* the top of a stack, on which registers are */
void stand_in_switch(place *from, place to);
__asm__(".text\n"
        ".type stand_in_switch, @function\n"
        "stand_in_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq "
        "%r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size stand_in_switch, . - stand_in_switch\n");

static void switch_to(place *from, place *to) {
    stand_in_switch(from, *to);
}

static void make_place(place *made, char *stack, void (*enter)(void)) {
    void **top = (void **)(void *)(stack + STACK_BYTES) - 2;
    *(void (**)(void))top = enter;
    *made = top - 6; /* registers, of any value */
}
#else
typedef ucontext_t place;
static void switch_to(place *from, place *to) {
    swapcontext(from, to);
}

static void make_place(place *made, char *stack, void (*enter)(void)) {
    getcontext(made);
    made->uc_stack.ss_sp = stack;
    made->uc_stack.ss_size = STACK_BYTES;
    made->uc_link = NULL;
    makecontext(made, enter, 0);
}
#endif

/* ---- groups ---- */

typedef struct groups {
    place host, threads[STAND_IN_GROUP];
    stand_in_position now;
    bool is_done[STAND_IN_GROUP];
    char *stacks;
    const stand_in_kernel *kernel;
    char *const *memories;
    int *words;
    const stand_in_arguments *arguments;
} groups;

/* The calling thread's, from the first kernel on. */
static _Thread_local groups *own;

const stand_in_position *stand_in_place(void) {
    return &own->now;
}

static void enter(void) {
    groups *g = own;
    int thread = g->now.thread;
    for (;;) {
        g->kernel->run(g->memories, g->words, g->arguments);
        g->is_done[thread] = true;
        switch_to(&g->threads[thread], &g->host);
    }
}

void stand_in_barrier(void) {
    groups *g = own;
    switch_to(&g->threads[g->now.thread], &g->host);
}

static void make_groups(void) {
    own = calloc(1, sizeof *own);
    if (!own) abort();
    own->stacks = mmap(NULL, STAND_IN_GROUP * STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (own->stacks == MAP_FAILED) abort();
    for (int i = 0; i < STAND_IN_GROUP; i++)
        make_place(&own->threads[i], own->stacks + (size_t)i * STACK_BYTES, enter);
}

void stand_in_free_groups(void) {
    if (own) munmap(own->stacks, STAND_IN_GROUP * STACK_BYTES);
    free(own);
    own = NULL;
}

static void run_group(groups *g, bool backward) {
    int n_left = STAND_IN_GROUP;
    for (int i = 0; i < STAND_IN_GROUP; i++) g->is_done[i] = false;
    for (; n_left; backward = !backward)
        for (int i = 0; i < STAND_IN_GROUP; i++) {
            int thread = backward ? STAND_IN_GROUP - 1 - i : i;
            if (g->is_done[thread]) continue;
            g->now.thread = thread;
            switch_to(&g->host, &g->threads[thread]);
            n_left -= g->is_done[thread];
        }
}

void stand_in_run_groups(const stand_in_kernel *kernel, unsigned narrow, long n,
                         char *const memories[], int *words, const stand_in_arguments *arguments) {
    if (!own) make_groups();
    groups *g = own;
    g->kernel = kernel;
    g->now.narrow = narrow;
    g->memories = memories;
    g->words = words;
    g->arguments = arguments;
    for (long i = 0; i < n; i++) {
        g->now.group = n & 1 ? i : n - 1 - i;
        run_group(g, i & 1);
    }
}
