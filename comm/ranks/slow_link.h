/*
 * Makes the link between nodes slow, for tests (CLT_TESTING). An exchange then ends no sooner than
 * after the latency and the time that the node's bytes take at the bandwidth.
 */
#ifndef CLT_COMM_SLOW_LINK_H
#define CLT_COMM_SLOW_LINK_H

#include <stdint.h>

#include <cltrain/status.h>

typedef struct clt_slow_link {
    double latency;   /* seconds */
    double bandwidth; /* bytes a second; 0: the link keeps its speed */
} clt_slow_link;

#ifdef CLT_TESTING
/* "1Gbit/s,50us": a number of Gbit/s, Mbit/s, GB/s or MB/s, then of s, ms or us. NULL: the
 * environment variable CLT_TESTING_LINK is used, if it is set. It is read when a rank opens a link.
 */
extern const char *clt_slow_link_testing;

/* Reads the text. Error: INVALID_ARGUMENT for a wrong text. */
clt_status clt_slow_link_init(clt_slow_link *link);

/* Returns the time of clt_clock before which an exchange of so many bytes does not end. */
double clt_slow_link_due(const clt_slow_link *link, int64_t bytes);
#else
static inline clt_status clt_slow_link_init(clt_slow_link *link)
{
    (void)link;
    return CLT_OK;
}

static inline double clt_slow_link_due(const clt_slow_link *link, int64_t bytes)
{
    (void)link, (void)bytes;
    return 0;
}
#endif

#endif
