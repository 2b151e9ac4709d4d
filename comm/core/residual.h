/* The memory of clt_comm_residual. */
#ifndef CLT_COMM_RESIDUAL_H
#define CLT_COMM_RESIDUAL_H

#include "comm/core/rounding.h"
#include <cltrain/comm.h>

enum { CLT_COMM_ROUNDINGS = CLT_COMM_ROUNDS_SUM + 1 };

/* A request reads version `now` and writes the other one, which counts once it is accepted. */
struct clt_comm_residual {
    const clt_comm *comm;
    int64_t count;
    int now;
    bool written;                     /* a request has written the other version */
    bool does[CLT_COMM_ROUNDINGS];    /* the communicator may do the rounding */
    bool copies;                      /* another rank has the same residual of sums */
    float *of[CLT_COMM_ROUNDINGS][2]; /* by rounding and version; NULL: none */
};

/* Returns a rounding of the request under way, from element `first` on. */
clt_rounding clt_residual_use(const clt_comm_residual *residual, clt_comm_rounding rounding,
                              int64_t first, double scale);

#endif
