/* Configurations in Hugging Face's form. */
#pragma once

#include "common/cli.h"

/* Converts the config.json beside the weights to weft's metadata; NULL: there is none of a known
 * kind. Complains. */
exit_status config_json_read(const cli *c, const char *weights, json_t **about_out);
