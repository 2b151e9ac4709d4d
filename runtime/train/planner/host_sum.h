/* The reference time with which clt_measure_all_reduce compares: two threads write two arrays.
 * Then, timed, they read both arrays and write the sum to both. */
#ifndef CLT_TRAIN_PLANNER_HOST_SUM_H
#define CLT_TRAIN_PLANNER_HOST_SUM_H

#include <stdint.h>

#include <cltrain/status.h>

typedef struct clt_sum_loop clt_sum_loop;

clt_status clt_sum_loop_open(int64_t count, clt_sum_loop **loop);
void clt_sum_loop_close(clt_sum_loop *loop); /* takes NULL */
double clt_sum_loop_seconds(clt_sum_loop *loop);

#endif
