/* Help and man page: the option table in two forms. */
#include "common/cli.h"
#include "common/text.h"

#include <string.h>

static const char exit_text[] =
    "0 done; 1 the run failed; 2 usage; 3 the plan does not fit into the memory given; 4 a rank "
    "died, stalled or disagreed; 130, 143 interrupted";
static const char run_exit_text[] = "status of the first rank that failed; 2 usage";

/* Prints words, wrapped at 79 columns, every line but the first indented. */
static void print_wrapped(FILE *out, const char *text, int column, int indent) {
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column + n > 79 && column > indent) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        fprintf(out, "%.*s", n, text);
        text += n;
        column += n + 1;
        while (*text == ' ') text++;
        if (*text && column + (int)strcspn(text, " ") <= 79) fputc(' ', out);
    }
    fputc('\n', out);
}

void print_help(FILE *out) {
    fputs("weft trains neural networks: write the model once, choose in one line how its\n"
          "work is divided, know its cost before it runs, get the same numbers.\n"
          "\n"
          "Commands:\n",
          out);
    for (const command *about = commands; about->name; about++)
        fprintf(out, "  weft %-20s %s\n", about->name, about->summary);
    fputs("\n"
          "weft COMMAND --help lists the main options, --help=all every option.\n"
          "For example:\n"
          "  weft train --model resnet18 --data fashion-mnist --epochs 2 --batch 128 \\\n"
          "      --lr 0.1 --momentum 0.9 --out run\n"
          "\n"
          "Exit status: ",
          out);
    print_wrapped(out, exit_text, 13, 0);
}

static void print_option(FILE *out, option_id id, unsigned flag) {
    char text[500], name[TEXT_BYTES];
    const option o = option_about(id);
    int n = fprintf(out, "  %s%s%s", option_name(name, id), o.argument ? " " : "",
                    o.argument ? o.argument : "");
    if (n > 26)
        fprintf(out, "\n%28s", "");
    else
        fprintf(out, "%*s", 28 - n, "");
    option_describe(id, flag, text, sizeof text);
    print_wrapped(out, text, 28, 28);
}

static int count_options(const command *about) {
    int n = 0;
    for (option_id id = 0; id < N_OPTIONS; id++)
        n += (option_about(id).commands & about->flag) != 0;
    return n;
}

static void print_shorts(FILE *out, const command *about, const option_id *first) {
    fputs("\nMain options:\n", out);
    for (; *first != N_OPTIONS; first++) print_option(out, *first, about->flag);
    fprintf(out, "\nweft %s --help=all lists all %d options.\n", about->name, count_options(about));
}

static void print_groups(FILE *out, const command *about) {
    for (int group = 0; group < N_GROUPS; group++) {
        bool is_first = true;
        for (option_id id = 0; id < N_OPTIONS; id++) {
            const option o = option_about(id);
            if ((int)o.group != group || !(o.commands & about->flag)) continue;
            if (is_first) fprintf(out, "\n%s:\n", option_group_names[group]);
            is_first = false;
            print_option(out, id, about->flag);
        }
    }
}

void print_command_help(FILE *out, const command *about, bool is_all) {
    const option_id *first = is_all ? NULL : option_shorts(about->flag);
    fprintf(out, "weft %s: %s.\n", about->name, about->summary);
    if (first)
        print_shorts(out, about, first);
    else
        print_groups(out, about);
    fputs("\nExit status: ", out);
    print_wrapped(out, about->flag == FOR_RUN ? run_exit_text : exit_text, 13, 0);
}

/* ---- man page ---- */

static void print_roff(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text == '-' || *text == '\\') fputc('\\', out);
        fputc(*text, out);
    }
}

static void print_man_option(FILE *out, option_id id) {
    char text[500], name[TEXT_BYTES];
    const option about = option_about(id);
    fputs(".TP\n\\fB", out);
    print_roff(out, option_name(name, id));
    fputs("\\fR", out);
    if (about.argument) {
        fputs(" \\fI", out);
        print_roff(out, about.argument);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    option_describe(id, 0, text, sizeof text);
    print_roff(out, text);
    for (const command *c = commands; c->name; c++) {
        const char *other = option_describe_other(id, c);
        if (!other) continue;
        fprintf(out, "\n.br\n%s: ", c->name);
        print_roff(out, other);
    }
    fputs("\n.br\n[", out);
    for (const command *c = commands; c->name; c++)
        if (about.commands & c->flag) fprintf(out, " %s", c->name);
    fputs("]\n", out);
}

static void print_man(FILE *out) {
    fprintf(out, ".TH WEFT 1 \"\" \"weft %s\" \"User Commands\"\n", WEFT_VERSION);
    fputs(".SH NAME\nweft \\- train neural networks in parallel\n.SH SYNOPSIS\n", out);
    for (const command *about = commands; about->name; about++)
        fprintf(out, "%s\\fBweft %s\\fR [\\fIOPTION\\fR]...\n", about == commands ? "" : ".br\n",
                about->name);
    fputs(".SH COMMANDS\n", out);
    for (const command *about = commands; about->name; about++) {
        fprintf(out, ".TP\n\\fBweft %s\\fR\n", about->name);
        print_roff(out, about->summary);
        fputc('\n', out);
    }
    fputs(".SH OPTIONS\nThe commands that take an option follow it in brackets.\n", out);
    for (int group = 0; group < N_GROUPS; group++) {
        fprintf(out, ".SS %s\n", option_group_names[group]);
        for (option_id id = 0; id < N_OPTIONS; id++)
            if ((int)option_about(id).group == group) print_man_option(out, id);
    }
    fputs(".SH ENVIRONMENT\n", out);
    wf_variable variable;
    for (int i = 0; wf_info_variable(i, &variable); i++) {
        fprintf(out, ".TP\n\\fB%s\\fR\n", variable.name);
        print_roff(out, variable.help);
        fputc('\n', out);
    }
    fputs(".TP\n\\fBNO_COLOR\\fR\nno colours, even on a terminal\n.SH EXIT STATUS\n", out);
    fprintf(out, "%s; weft run: %s.\n", exit_text, run_exit_text);
    fputs(
        ".SH EXAMPLES\n.nf\n"
        "weft train \\-\\-model resnet18 \\-\\-data fashion\\-mnist \\-\\-epochs 2 \\-\\-out run\n"
        "weft plan \\-\\-model resnet50 \\-\\-batch 120 \\-\\-plan pp=2 \\-\\-micro 8\n"
        "weft bench train \\-\\-model resnet50 \\-\\-threads 1 \\-\\-json \\-\n.fi\n",
        out);
}

exit_status run_help(int argc, char *const *argv) {
    if (argc == 0) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (argc == 1 && !strcmp(argv[0], "--man")) {
        print_man(stdout);
        return EXIT_DONE;
    }
    if (!strcmp(argv[0], "--complete")) {
        complete(argc - 1, argv + 1);
        return EXIT_DONE;
    }
    bool is_all = argc > 1 && !strcmp(argv[argc - 1], "all");
    int n_found = 0; /* "bench" has several */
    for (const command *about = commands; about->name; about++) {
        size_t n = strcspn(about->name, " ");
        if (strncmp(argv[0], about->name, n) || argv[0][n]) continue;
        if (n_found++) fputc('\n', stdout);
        print_command_help(stdout, about, is_all);
    }
    if (n_found) return EXIT_DONE;
    return complain(EXIT_USAGE, "there is no help on '%.60s'; weft help lists the commands",
                    argv[0]);
}
