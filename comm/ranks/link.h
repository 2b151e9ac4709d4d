/*
 * Connects a node's first rank with the other nodes: the calls of a clt_comm_bridge with a
 * deadline, and notices of ranks that end. Notices are sent and heard independently of the calls,
 * so the end of a rank on one node ends the waiting on all others.
 */
#ifndef CLT_COMM_LINK_H
#define CLT_COMM_LINK_H

#include "comm/ranks/node_ranks.h"

typedef struct clt_link clt_link;

/* Does a part of an exchange without waiting. Sets *done at its end. */
typedef clt_status (*clt_link_step)(void *arg, bool *done);

/* Calls `step` until it is done or fails, on a thread that may call the bridge. Returns its status.
 * It may return before if the request is aborted. */
typedef clt_status (*clt_link_run)(void *user, clt_link_step step, void *arg);

/* Opens a link. `node` is NULL if the node has one rank. `rank` is this rank's number among all
 * ranks. The bridge is copied. With `run` NULL, the calling thread calls the bridge. Errors:
 * OUT_OF_MEMORY. */
clt_status clt_link_open(clt_ranks *node, int rank, const clt_comm_bridge *bridge, clt_link_run run,
                         void *user, clt_link **link);

/* Frees the link. Takes NULL. Only for threads that may call the bridge. */
void clt_link_close(clt_link *link);

/* Begins a request. Calls of the bridge follow. `job` must be valid until its end. */
void clt_link_begin(clt_link *link, const clt_ranks_job *job);

/* Says that the request makes no further calls of the bridge. */
void clt_link_end(clt_link *link);

/* Gives up the exchange under way, if there is one. Only for threads that may call the bridge. */
void clt_link_give_up(clt_link *link);

/* Exchange data by the bridge's functions, and wait for the end. Errors: TIMEOUT (the message names
 * the missing first ranks), ABORTED (by the job, or another rank's end), the bridge's. */
clt_status clt_link_gather(clt_link *link, const void *mine, int64_t bytes, void *all);
clt_status clt_link_exchange(clt_link *link, const void *blocks, int64_t bytes, void *received);
clt_status clt_link_broadcast(clt_link *link, int root, void *data, int64_t bytes);

/* Sends and receives this node's messages. All nodes call it, but those without messages only count
 * the call. */
clt_status clt_link_transfer(clt_link *link, const clt_comm_message *messages, int count);

/* Whether the network may still use memory of a failed exchange. */
bool clt_link_busy(const clt_link *link);

/* Sets the kind under which clt_link_sent counts the next calls. clt_link_begin sets the job's
 * kind. */
void clt_link_kind(clt_link *link, clt_comm_kind kind);

/* Returns the bytes of a kind that this node gave to the bridge for other nodes. Any thread may
 * call it. */
int64_t clt_link_sent(const clt_link *link, clt_comm_kind kind);

/* Returns the number of a node's first rank among all ranks. */
int clt_link_first(const clt_link *link, int node);

/* Returns ABORTED, with a message, if a rank of another node has ended a collective that this rank
 * waits for. Only for threads that may call the bridge. `job` is NULL outside a request. */
clt_status clt_link_listen(clt_link *link, const clt_ranks_job *job);

/* Whether a rank has done so, and its notice. Any thread may call it. */
bool clt_link_heard(clt_link *link, clt_ranks_notice *notice);

/* Tells the other nodes of an abort or of an orderly end, once. An orderly end only ends requests
 * that this node would have to take part in. A node also tells if another node ended first, because
 * each node expects a notice from all nodes that did not finalize. Only for threads that may call
 * the bridge. */
void clt_link_tell(clt_link *link, const clt_ranks_notice *notice, bool aborted);

/* Returns TIMEOUT with a message that names the missing first ranks. Any thread may call it. */
clt_status clt_link_late(const clt_link *link, const clt_ranks_job *job);

#endif
