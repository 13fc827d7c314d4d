/* Starts this program again as ranks of mpirun. */
#pragma once

#include "test.h"

#include <unistd.h>

typedef enum mpi_family { OPEN_MPI, MPICH, N_MPI_FAMILIES } mpi_family;

/* The mpirun of that family, or NULL: also under a sanitizer, which finds fault with MPI. */
static inline const char *mpi_find(mpi_family family) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return NULL;
#endif
    static const char *const names[N_MPI_FAMILIES][2] = {{"mpirun.openmpi", "mpirun"},
                                                         {"mpirun.mpich", "mpirun"}};
    static const char *const words[N_MPI_FAMILIES] = {"Open MPI", "HYDRA"};
    char command[256];
    for (int k = 0; k < 2; k++) {
        snprintf(command, sizeof command, "%s --version 2>/dev/null | grep -c '%s' >/dev/null",
                 names[family][k], words[family]);
        if (system(command) == 0) return names[family][k];
    }
    return NULL;
}

/* Runs this program on n ranks with these words; its exit status, as of system(). */
static inline int mpi_start(const char *mpirun, int n, const char *words) {
    char command[4096], self[2048] = "";
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "timeout %d %s -np %d '%s' %s", TEST_TIMEOUT_MS / 1000,
             mpirun, n, self, words);
    return system(command);
}
