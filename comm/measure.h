/* What clt_measure_all_reduce is made of: threads that begin at once, and the loop that it is
 * measured against. */
#ifndef CLT_COMM_MEASURE_H
#define CLT_COMM_MEASURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <cltrain/status.h>

/* Threads that wait for each other: asleep until the last is there, then awake, so that all go on
 * within less than a microsecond. */
typedef struct clt_meeting {
    pthread_barrier_t asleep;
    atomic_uint arrived;
    unsigned members;
} clt_meeting;

clt_status clt_meeting_open(clt_meeting *meeting, int members);
void clt_meeting_close(clt_meeting *meeting);
void clt_meet(clt_meeting *meeting);

/* The second half alone: for members that come at nearly the same time. */
void clt_meet_awake(clt_meeting *meeting);

/* CLOCK_MONOTONIC in seconds. */
double clt_measure_now(void);

/* Two threads that write two arrays and then, timed, read both and write the sum to both. */
typedef struct clt_sum_loop clt_sum_loop;

clt_status clt_sum_loop_open(int64_t count, clt_sum_loop **loop);
void clt_sum_loop_close(clt_sum_loop *loop); /* takes NULL */
double clt_sum_loop_seconds(clt_sum_loop *loop);

#endif
