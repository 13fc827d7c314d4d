/* Mail that MPI carries. Private. */
#ifndef WFI_MPI_MAIL_H
#define WFI_MPI_MAIL_H

#include "comm/courier/mail.h"

/* Loads the library; all calls of MPI are made by the thread that calls the mail's functions.
 * Errors: UNSUPPORTED. */
wf_status wfi_mpi_mail(wf_context *ctx, wfi_mail *mail_out);

#endif
