/*
 * What instructions do to a device, with terms in place of numbers: a term is a hash of how a value
 * was made, so that equal terms mean equal values. The checker (check.c) runs programs on these.
 */
#ifndef CLT_TRAIN_PROGRAM_SYMBOLIC_H
#define CLT_TRAIN_PROGRAM_SYMBOLIC_H

#include "train/program/program.h"

/* Rounds that a check can have: a first, a last and two turns of the loop between them. */
enum { CLT_SYMBOLIC_ROUNDS = 4 };

/* A buffer. */
typedef struct clt_symbol {
    uint64_t term;
    int version; /* CLT_VERSION_..., or the micro-batch up to which it is added up */
    bool valid;  /* written whole */
    bool flight; /* a collective has it: nothing may read or write it */
    bool part;   /* in 16 bits, of one of several micro-batches: the sum is elsewhere */
} clt_symbol;

/* A collective that a device has started: what all participants must agree on. */
typedef struct clt_symbolic_request {
    clt_operand on;
    int item, slot, peer, group;
    uint64_t shape;   /* size and name of the graph's node */
    uint64_t operand; /* what this device gives; 0: nothing */
    bool open;        /* started and not complete */
    int number;       /* among all that the device has started */
} clt_symbolic_request;

typedef struct clt_symbolic_device {
    const clt_step_program_input *in;
    clt_step_program_kind kind;
    int rounds, micros;

    clt_symbol *values;       /* by bucket: parameters and states */
    clt_symbol *slots;        /* by slot and bucket */
    clt_symbol *gradients[2]; /* by bucket: the first, and those of further micro-batches */
    clt_symbol *sums;         /* by bucket: 16 bits are added up in f32 */
    uint64_t *measured; /* by bucket: what the host learned of the reduced gradient; 0: nothing */
    clt_symbol means, results, totals;
    uint64_t given_results[CLT_SYMBOLIC_ROUNDS], fetched[CLT_SYMBOLIC_ROUNDS];
    int cleared[2]; /* by set: the micro-batch; -1: none */

    int fed, given;    /* micro-batch whose inputs, and given gradients, are there; -1: none */
    bool waited;       /* for the caller's events */
    uint64_t upstream; /* 0: none */
    int arena, next;   /* intermediates: of which micro-batch, up to which node; arena -1: none */
    uint64_t begun;    /* the term of the inputs and parameters that they began with */
    int *exchanged;    /* by collective of the plan: 0, 1 started, 2 complete */
    uint64_t *sums_of; /* by collective of the plan: its result */
    int inspected[CLT_SYMBOLIC_ROUNDS]; /* by micro-batch: up to which node */
    uint64_t status;                    /* 0: none */
    uint64_t checksum;                  /* 0: none */
    bool may_leave, measures, was_measured, commits, committed, carried, read_status, compared;
    bool finished;
    uint64_t read_results;
    bool unflushed;

    clt_symbolic_request *requests;
    int n_requests, room_requests;
} clt_symbolic_device;

/* A device before the program runs. */
clt_status clt_symbolic_create(const clt_step_program_input *input, clt_step_program_kind kind,
                               int rounds, int micros, clt_symbolic_device *device);

void clt_symbolic_free(clt_symbolic_device *device);

/* What an instruction other than COMPLETE does; its micro-batch, set and version are numbers. NULL,
 * or why it may not run here. */
const char *clt_symbolic_execute(clt_symbolic_device *device, const clt_instruction *instruction);

/* The request that a COMPLETE is for; NULL: none is open. */
clt_symbolic_request *clt_symbolic_request_of(clt_symbolic_device *device,
                                              const clt_instruction *instruction);

/* The collective has `result`, of all participants' operands. */
void clt_symbolic_complete(clt_symbolic_device *device, clt_symbolic_request *request,
                           uint64_t result);

/* NULL, or what is missing at the program's end. */
const char *clt_symbolic_missing(const clt_symbolic_device *device);

/* A term of all that the program leaves. */
uint64_t clt_symbolic_final(const clt_symbolic_device *device);

uint64_t clt_term(uint64_t tag, uint64_t a, uint64_t b);

#endif
