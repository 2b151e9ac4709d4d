/*
 * A node's way to the other nodes, used by its first rank: the calls of a clt_comm_bridge with a
 * deadline, and notices of ranks that end, which are sent and heard beside those calls. So an end
 * on one node ends the waiting on all others.
 */
#ifndef CLT_COMM_LINK_H
#define CLT_COMM_LINK_H

#include "comm/ranks/node.h"

typedef struct clt_link clt_link;

/* `node`: NULL where the node has one rank; `rank`: this one's number among all. The bridge is
 * copied. Errors: OUT_OF_MEMORY. */
clt_status clt_link_open(clt_ranks *node, int rank, const clt_comm_bridge *bridge, clt_link **link);

/* Takes NULL. */
void clt_link_close(clt_link *link);

/* A request begins, whose calls of the bridge follow; `job` is valid to its end. */
void clt_link_begin(clt_link *link, const clt_ranks_job *job);

/* No call of the bridge is left in the request. */
void clt_link_end(clt_link *link);

/* The bridge's functions. Errors: TIMEOUT (names the first ranks that are missing), ABORTED (the
 * job's, or another rank's end), the bridge's. */
clt_status clt_link_gather(clt_link *link, const void *mine, int64_t bytes, void *all);
clt_status clt_link_exchange(clt_link *link, const void *blocks, int64_t bytes, void *received);
clt_status clt_link_broadcast(clt_link *link, int root, void *data, int64_t bytes);

/* Whether memory that a failed call was given may still be used. */
bool clt_link_busy(const clt_link *link);

/* What the next calls belong to, for clt_link_sent. clt_link_begin takes the job's. */
void clt_link_kind(clt_link *link, clt_comm_kind kind);

/* Bytes that this node gave to the bridge for other nodes, of a kind. Any thread. */
int64_t clt_link_sent(const clt_link *link, clt_comm_kind kind);

/* The number, among all, of a node's first rank. */
int clt_link_first(const clt_link *link, int node);

/* ABORTED with a message where a rank of another node has ended what this one waits for. From a
 * thread that may call the bridge; `job` NULL: outside a request. */
clt_status clt_link_listen(clt_link *link, const clt_ranks_job *job);

/* Whether one has; its notice. Any thread. */
bool clt_link_heard(clt_link *link, clt_ranks_notice *notice);

/* Tells the other nodes, once, even where it was one of them: each expects a notice of all that did
 * not finalize. Of an abort, or of an
 * orderly end, which only ends what this node would have to take part in. From a thread that may
 * call the bridge. */
void clt_link_tell(clt_link *link, const clt_ranks_notice *notice, bool aborted);

/* TIMEOUT: names the first ranks that are missing. Any thread. */
clt_status clt_link_late(const clt_link *link, const clt_ranks_job *job);

#endif
