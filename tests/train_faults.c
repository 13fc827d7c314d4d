/* WEFT_RAISE takes the name of each instruction of a program, and raises its signal once, before
 * the Nth instruction of that name; texts that are wrong are refused.
 *
 * label: serial
 */
#include "execute/fault.h"
#include "program/program.h"
#include "test.h"

#include <signal.h>

static int n_raised;

static void count(int number) {
    assert_int_equal(number, SIGUSR2);
    n_raised++;
}

/* Calls `act` for one instruction of each name. */
static void for_each(void (*act)(const wfi_instruction *now, void *arg), void *arg) {
    for (int kind = 0; kind < WFI_N_INSTRUCTION_KINDS; kind++)
        if (kind != WFI_CHANGE) act(&(wfi_instruction){.kind = (wfi_instruction_kind)kind}, arg);
    for (int from = 0; from < WFI_N_PLACEMENTS; from++)
        for (int to = 0; to < WFI_N_PLACEMENTS; to++) {
            wfi_instruction now = {
                .kind = WFI_CHANGE, .from = (wfi_placement)from, .to = (wfi_placement)to};
            if (wfi_change_name(now.from, now.to)) act(&now, arg);
        }
}

static void pass(const wfi_instruction *now, void *raise) {
    wfi_raise_at(raise, now);
}

static void strike(const wfi_instruction *now, void *ctx) {
    char text[100];
    wfi_raise r;
    n_raised = 0;
    snprintf(text, sizeof text, "%d:%s:3:2", SIGUSR2, wfi_instruction_name(now));
    setenv("WEFT_RAISE", text, 1);
    TEST_OK(ctx, wfi_raise_read(ctx, &r));
    assert_int_equal(r.rank, 3);
    for_each(pass, &r);
    assert_int_equal(n_raised, 0);
    wfi_raise_at(&r, now);
    assert_int_equal(n_raised, 1);
    for_each(pass, &r);
    assert_int_equal(n_raised, 1);
}

TEST(every_instruction) {
    signal(SIGUSR2, count);
    for_each(strike, ctx);
    wfi_raise r = {0};
    setenv("WEFT_RESTART", "1", 1); /* faults of machines pass */
    TEST_OK(ctx, wfi_raise_read(ctx, &r));
    assert_int_equal(r.left, 0);
    unsetenv("WEFT_RESTART");
}

TEST(wrong_texts) {
    static const char *const texts[] = {"9",           "9:change:0:1",   "9:forwards:0:1",
                                        "0:load:0:1",  "65:load:0:1",    "9:load:-1:1",
                                        "9:load:0:0",  "9:load:0:1:",    "9::0:1",
                                        "9:load:0:-1", "9:forward:0:1 ", "load:9:0:1"};
    wfi_raise r;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        setenv("WEFT_RAISE", texts[i], 1);
        TEST_REFUSED(ctx, wfi_raise_read(ctx, &r), WF_INVALID_ARG,
                     "it takes SIGNAL:INSTRUCTION:RANK:N");
    }
}
