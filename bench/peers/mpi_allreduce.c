/* MPI_Allreduce of floats in place, as `weft bench allreduce --peers` times it: checked once, then
 * as many calls as fit into 20 ms, at least one; the longest time of the ranks.
 *
 *     mpicc -O2 -o mpi_allreduce mpi_allreduce.c
 *     mpirun -n 2 ./mpi_allreduce --bytes=4096,1048576 --json=report.json
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET_US  20000.0
#define MOST_CALLS 4096

static void sum(float *x, int n_elem) {
    MPI_Allreduce(MPI_IN_PLACE, x, n_elem, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static double timed(float *x, int n_elem, int n_calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), us;
    for (int i = 0; i < n_calls; i++) sum(x, n_elem);
    us = (MPI_Wtime() - start) * 1e6 / n_calls;
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return us;
}

static double measure(size_t bytes, int rank, int n_ranks) {
    int n_elem = (int)(bytes / sizeof(float));
    if (bytes / sizeof(float) > 2147483647) MPI_Abort(MPI_COMM_WORLD, 1); /* a count is an int */
    float *x = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!x) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < n_elem; i++) x[i] = (float)(i % 251 + rank);
    sum(x, n_elem);
    for (int i = 0; i < n_elem; i++)
        if (x[i] != (float)(n_ranks * (i % 251) + n_ranks * (n_ranks - 1) / 2)) {
            fprintf(stderr, "element %d of %d is %g\n", i, n_elem, x[i]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    memset(x, 0, bytes);
    sum(x, n_elem);
    double us = timed(x, n_elem, 1);
    if (us < BUDGET_US / 16) us = timed(x, n_elem, 8);
    us = timed(x, n_elem, us * MOST_CALLS < BUDGET_US ? MOST_CALLS : (int)ceil(BUDGET_US / us));
    free(x);
    return us;
}

int main(int argc, char **argv) {
    int rank, n_ranks, length;
    char *list = NULL, *json = NULL, library[MPI_MAX_LIBRARY_VERSION_STRING];
    FILE *out = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--bytes=", 8)) list = argv[i] + 8;
        if (!strncmp(argv[i], "--json=", 7)) json = argv[i] + 7;
    }
    if (!list || !json || (rank == 0 && !(out = fopen(json, "w")))) {
        if (rank == 0) fprintf(stderr, "usage: mpi_allreduce --bytes=N,N,... --json=FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n\"\\")] = 0;
    if (out) fprintf(out, "{\"version\": \"%s\", \"rows\": [", library);
    for (char *word = strtok(list, ","), *before = ""; word;
         word = strtok(NULL, ","), before = ", ") {
        unsigned long long bytes = strtoull(word, NULL, 10);
        double us = measure(bytes, rank, n_ranks);
        if (out) fprintf(out, "%s{\"bytes\": %llu, \"time_us\": %.17g}", before, bytes, us);
    }
    if (out) {
        fprintf(out, "]}\n");
        if (fclose(out)) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
