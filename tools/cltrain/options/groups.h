/* --freeze and --param-group. */
#ifndef CLTRAIN_COMMAND_OPTIONS_GROUPS_H
#define CLTRAIN_COMMAND_OPTIONS_GROUPS_H

#include <cltrain/graph.h>

#include "options/options.h"

/* Does to the parameters of a model what the options say, before a store is made of it. Returns an
 * exit code, after a message if it is not 0. */
int read_groups(clt_graph *graph, const settings *s);

#endif
