/* Runs of small launches that are one kernel, as plan/merge.c found them. */
#ifndef CLT_EXEC_MERGED_H
#define CLT_EXEC_MERGED_H

#include "exec/exec.h"

/* The launches of nodes [first, end) as one kernel, in one work-item. */
typedef struct clt_merged {
    int first, end;
    char *source;
    uint64_t parts;         /* a hash of what the source was written from */
    cl_kernel kernel;       /* NULL until clt_merged_build */
    const clt_launch *wide; /* of the plan: whose work-items the kernel has; NULL: a single one */
    char name[64];          /* for profiles */
    /* The buffers, which are its first arguments: kind and index. `offset` is the end of what the
     * kernel uses. */
    clt_place *places;
    int n_places, room_places;
    /* Where values lie in buffers whose places do not move, in elements. They are arguments, so
     * that equal layers have the same source. */
    cl_long *offsets;
    int n_offsets, room_offsets;
    /* All numbers among the arguments: those of a run, the buffers' moving offsets, and `offsets`.
     * The kernel has them as vectors of CLT_PACKED_LANES, because a driver takes about 0.1 us for
     * each argument. */
    cl_long *numbers;
    int n_vectors;
} clt_merged;

enum { CLT_MERGED_BUFFERS = 256 };

/* Returns the number of arguments before those of the tail. */
cl_uint clt_merged_arguments(const clt_merged *merged);

/* Returns the program's key, which the source must outlive. */
clt_program_key clt_merged_key(const clt_merged *merged);

clt_status clt_merged_build(clt_device *device, clt_merged *merged);

/* Whether the place of a buffer differs between steps, so that the kernel has its offset as an
 * argument. */
static inline bool clt_merged_moves(clt_place_kind kind)
{
    return kind == CLT_PLACE_INPUT || kind == CLT_PLACE_RESULT;
}

/* The kernels of a plan: those of whole runs, and of parts of runs that were enqueued. */
typedef struct clt_merged_list {
    clt_merged *all;
    int count, room;
} clt_merged_list;

/* What a kernel does after its nodes, with parameters of its own behind the others. */
typedef struct clt_merged_tail {
    const struct clt_merge_part *parts;
    int n;
    const char *parameters; /* begins with ", " */
} clt_merged_tail;

/* Writes the kernel's source. `tail` may be NULL. `list` may have kernels of equal source. */
clt_status clt_merged_create(const clt_merged_list *list, const clt_plan *plan, int first, int end,
                             const clt_merged_tail *tail, clt_merged *out);

void clt_merged_free(clt_merged *merged);

/* Gets the kernel of nodes [first, end), whose source is written at the first call. It is valid
 * until the next call. */
clt_status clt_merged_get(clt_merged_list *list, const clt_plan *plan, int first, int end,
                          clt_merged **merged);

void clt_merged_list_free(clt_merged_list *list);

/* Returns the plan's run of merged launches that has the node; NULL: none. */
const clt_plan_merge *clt_merged_run(const clt_plan *plan, int node);

/* Returns how many launches of node `first` stay apart if merged launches begin with the node. */
int clt_merged_skip(const clt_plan *plan, int first);

/* Returns whether a launch of the node is part of merged launches. */
bool clt_merged_has(const clt_plan *plan, int node, int launch);

/* Returns whether this run can use the kernel: it adds to no gradient and has samples. */
static inline bool clt_merged_fits(const clt_run *run)
{
    return run->count > 0 && !run->further;
}

/* Writes merged->numbers for a run. `buffers` as in clt_merged_enqueue; NULL: no offsets. */
void clt_merged_set_numbers(clt_merged *merged, const clt_run *run, const clt_view *buffers);

/* Enqueues the kernel. buffers[i] is the place of merged->places[i]. `ended` counts the work-items
 * that have ended; it is 0 between kernels. *done becomes the kernel's event, which the caller
 * releases; NULL: it is not needed. */
clt_status clt_merged_enqueue(clt_device *device, clt_merged *merged, const clt_run *run,
                              const clt_view *buffers, cl_mem ended, cl_uint n_wait,
                              const cl_event *wait, cl_event *done);

#endif
