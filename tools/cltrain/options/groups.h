/* --freeze, --param-group and --stages. */
#ifndef CLTRAIN_COMMAND_OPTIONS_GROUPS_H
#define CLTRAIN_COMMAND_OPTIONS_GROUPS_H

#include <cltrain/graph.h>

#include "options/options.h"

/* Whether --stages asks for stages by measured times. */
int measures_stages(const settings *s);

/* Refuses that, for commands that do not train. Returns an exit code. */
int refuse_measured(const settings *s);

/* Applies --freeze, --param-group and the names in --stages to a model. Call this before a store is
 * made. Returns an exit code, after a message if it is not 0. */
int read_groups(clt_graph *graph, const settings *s);

#endif
