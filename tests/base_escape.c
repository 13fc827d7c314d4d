/* Text that others have chosen reaches no terminal as a command: it is escaped where sentences and
 * lines of the log are made.
 * label: serial
 */
#include "base/base.h"
#include "data_folder.h"

static void expect_escaped(const char *text, const char *expected) {
    char shown[64];
    assert_string_equal(wf_text_escape(text, shown, sizeof shown), expected);
}

TEST_CASE(controls_are_escaped) {
    expect_escaped("", "");
    expect_escaped("plain \\ text", "plain \\ text");
    expect_escaped("\x1b[31mred\r\n\t\x7f", "\\x1b[31mred\\x0d\\x0a\\x09\\x7f");
    /* C1 as UTF-8: U+009B is what ESC [ is. */
    expect_escaped("\xc2\x9b"
                   "2J\xc2\x80",
                   "\\u009b2J\\u0080");
    expect_escaped("gr\xc3\xbc\xc3\x9f \xe2\x86\x92 \xf0\x9f\x98\x80 \xc2\xa0",
                   "gr\xc3\xbc\xc3\x9f \xe2\x86\x92 \xf0\x9f\x98\x80 \xc2\xa0");
}

/* Bytes that are no UTF-8: alone, cut off, overlong, surrogates, beyond the last character. */
TEST_CASE(bad_bytes_are_escaped) {
    expect_escaped("\x9b", "\\x9b");
    expect_escaped("a\xe2\x86", "a\\xe2\\x86");
    expect_escaped("\xc0\x9b", "\\xc0\\x9b");
    expect_escaped("\xe0\x82\x9b", "\\xe0\\x82\\x9b");
    expect_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80");
    expect_escaped("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
    expect_escaped("\xff", "\\xff");
}

TEST_CASE(cuts_between_characters) {
    char shown[8];
    memset(shown, 'x', sizeof shown);
    assert_string_equal(wf_text_escape("abc\x1b", shown, 7), "abc");
    assert_string_equal(wf_text_escape("abc\x1b", shown, 8), "abc\\x1b");
    assert_string_equal(wf_text_escape("a\xc3\xbc", shown, 3), "a");
    wf_text_escape("abc", shown, 0);
    assert_string_equal(shown, "a");
}

static void note_line(void *self, wf_log_level level, const char *topic, const char *line) {
    snprintf(self, 64, "%s", line);
}

TEST_CASE(sentences_are_escaped) {
    char line[64] = "";
    wf_context *ctx;
    wf_context_config config = WF_CONTEXT_CONFIG_INIT;
    config.log = note_line;
    config.log_self = line;
    assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
    wf_status status = wfi_fail(ctx, WF_CORRUPT, "x: tensor %s", "\x1b]0;owned\a");
    expect_failure(ctx, status, WF_CORRUPT, "x: tensor \\x1b]0;owned\\x07");
    status = wfi_fail_at(ctx, WF_CORRUPT, "%s", "\x1b[A");
    expect_failure(ctx, status, WF_CORRUPT, "\\x1b[A: x: tensor \\x1b]0;owned\\x07");
    status = wf_context_fail(ctx, WF_REMOTE, "rank 1 says \x1b[2J");
    expect_failure(ctx, status, WF_REMOTE, "rank 1 says \\x1b[2J");
    wfi_log(ctx, WF_LOG_WARN, "store", "from %s", "\x1b[1m");
    assert_string_equal(line, "from \\x1b[1m");
    wf_context_destroy(ctx);
}
