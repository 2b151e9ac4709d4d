/* What the snippets of docs/embedding.md use without declaring it. */
#include <cltrain/cltrain.h>
#include <cltrain/comm.h>
#include <cltrain/opencl.h>

extern clt_trainer *trainer, *t;
extern clt_graph *graph;
extern clt_value *y;
extern clt_dataset *cells;
extern clt_array arrays[2], dx, sum;
extern clt_feed dy;
extern clt_step_batch batch;
extern clt_comm *comm;
extern clt_comm_device devices[2];
extern clt_comm_request *requests[2];
extern cl_mem buffers[2];
extern double *x, loss;
extern float *g;
extern int64_t n, three[1], one[1];
extern size_t bytes;
extern int d, steps;
