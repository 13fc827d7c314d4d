/* The network over MPI. Private. */
#pragma once

#include "comm/transport/network.h"

/* Loads the library. Only the thread that calls the network's functions calls MPI. Errors:
 * UNSUPPORTED. */
wf_status wfi_mpi_network(wf_context *ctx, wfi_network *network_out);
