/* --parallel auto, and meshes of machines that are not there. */
#ifndef CLTRAIN_COMMAND_JOB_CHOOSE_MESH_H
#define CLTRAIN_COMMAND_JOB_CHOOSE_MESH_H

#include "job/job.h"

/* Whether --parallel is auto. */
int chooses_mesh(const settings *s);

/* Refuses auto beside axes, and beside the options that it chooses. `trains`: the command trains.
 * Returns an exit code. */
int check_auto(const settings *s, int trains);

/* With --parallel auto: measures meshes, prints the ranking unless the job is silent, and sets the
 * options of the fastest in `s` and `j`, as if they had been given. Call it after job_data.
 * Collective. Returns an exit code. */
int job_choose_mesh(job *j, settings *s);

/* Whether --simulate is about meshes: --inter was given. */
int simulates_meshes(const settings *s);

/* Checks --inter, --per-node and --sync-every. Returns an exit code. */
int check_simulated_meshes(const settings *s);

/* Prints the ranking for each number of devices of --simulate, or why so many devices have no mesh;
 * if none has one, that is a failure. Call it after job_data. Returns an exit code. */
int print_simulated_meshes(job *j, const settings *s);

#endif
