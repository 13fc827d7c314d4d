/* The network that MPI is. Private. */
#ifndef WFI_MPI_NETWORK_H
#define WFI_MPI_NETWORK_H

#include "comm/transport/network.h"

/* Loads the library; all calls of MPI are made by the thread that calls the network's functions.
 * Errors: UNSUPPORTED. */
wf_status wfi_mpi_network(wf_context *ctx, wfi_network *network_out);

#endif
