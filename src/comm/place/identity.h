/* Which job this process belongs to, as its launcher says. Private. */
#ifndef WFI_IDENTITY_H
#define WFI_IDENTITY_H

#include "base/base.h"

/* Adds a setting for each name that launchers give jobs; they are the same in all ranks of one. */
void wfi_identity_add(wfi_text *statement);

#endif
