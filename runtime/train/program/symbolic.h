/* The effects of instructions on a device, with terms in place of numbers. A term is a hash of how
 * a value was computed, so equal terms mean equal values. The checker (check.c) runs programs on
 * these devices. */
#ifndef CLT_TRAIN_PROGRAM_SYMBOLIC_H
#define CLT_TRAIN_PROGRAM_SYMBOLIC_H

#include "train/program/program.h"

/* Most rounds of a check. */
enum { CLT_SYMBOLIC_ROUNDS = 72 };

/* The state of a buffer. */
typedef struct clt_symbol {
    uint64_t term;
    int version; /* CLT_VERSION_..., or the last micro-batch in the sum */
    bool valid;  /* completely written */
    bool flight; /* in use by a collective: no instruction may read or write it */
    bool part;   /* 16-bit gradients of one of several micro-batches; the sum is elsewhere */
} clt_symbol;

/* A collective that a device has started. All participants must agree on these fields. */
typedef struct clt_symbolic_request {
    clt_operand on;
    int item, slot, peer, group, micro;
    uint64_t shape;   /* size and name of the graph's node */
    uint64_t operand; /* term of this device's input; 0: none */
    int way;          /* 1: this device sends, -1: it receives, 0: neither */
    bool open;        /* started and not complete */
    int number;       /* index among the collectives of the group that the device has started */
} clt_symbolic_request;

/* What a device keeps of a micro-batch in flight. */
typedef struct clt_symbolic_flight {
    int arena, next;   /* intermediates: their micro-batch (-1: none), and the next node */
    uint64_t begun;    /* term of the inputs and parameters at the start of the intermediates */
    int *exchanged;    /* by collective of the plan: 0, 1 started, 2 complete */
    uint64_t *sums_of; /* by collective of the plan: its result */
} clt_symbolic_flight;

typedef struct clt_symbolic_device {
    const clt_step_program_input *in;
    clt_step_program_kind kind;
    int rounds, micro_batches;

    clt_symbol *values;       /* by bucket: parameters and states */
    clt_symbol *slots;        /* by slot and bucket */
    clt_symbol *gradients[2]; /* by bucket: the first, and those of further micro-batches */
    clt_symbol *sums;         /* by bucket: f32 sums of 16-bit gradients */
    /* by bucket: what the host knows of the reduced gradient (norm, finiteness); 0: nothing */
    uint64_t *measured;
    clt_symbol means, results, totals;
    uint64_t round_results[CLT_SYMBOLIC_ROUNDS], fetched[CLT_SYMBOLIC_ROUNDS];
    uint64_t kept[CLT_SYMBOLIC_ROUNDS]; /* by micro-batch: its gradients of inputs; 0: none */
    int cleared; /* the micro-batch that the first gradients are cleared for; -1: none */

    int fed,
        gradients_fed; /* micro-batch whose inputs, and gradients of outputs, are set; -1: none */
    bool was_fed[CLT_SYMBOLIC_ROUNDS];  /* by micro-batch: its inputs are on the device */
    bool waited;                        /* for the caller's events */
    uint64_t upstream;                  /* 0: none */
    clt_symbolic_flight *flights;       /* one without micro-batches in flight */
    clt_symbolic_flight *now;           /* that of the current instruction */
    int running;                        /* micro-batch of the last RUN; -1: none */
    int inspected[CLT_SYMBOLIC_ROUNDS]; /* by micro-batch: number of inspected nodes */
    int ties;                           /* gradients of tied parameters that are added up */
    uint64_t own_words, words;          /* of this device, and of all; 0: none */
    uint64_t status;                    /* 0: none */
    uint64_t checksum;                  /* 0: none */
    bool may_leave, measures, was_measured, commits, committed, carried, read_status, compared;
    bool averaged;
    bool finished;
    uint64_t read_results;
    bool unflushed;

    clt_symbolic_request *requests;
    int n_requests, room_requests;
} clt_symbolic_device;

/* Creates the state of a device before the program runs. */
clt_status clt_symbolic_create(const clt_step_program_input *input, clt_step_program_kind kind,
                               int rounds, int micro_batches, clt_symbolic_device *device);

void clt_symbolic_free(clt_symbolic_device *device);

/* Returns the number of the last round. */
int clt_symbolic_last(const clt_symbolic_device *device);

/* Executes an instruction other than COMPLETE. Its micro-batch, set and version must be numbers.
 * Returns NULL, or why the instruction may not run here. */
const char *clt_symbolic_execute(clt_symbolic_device *device, const clt_instruction *instruction);

/* Returns the request of a COMPLETE; NULL if none is open. */
clt_symbolic_request *clt_symbolic_request_of(clt_symbolic_device *device,
                                              const clt_instruction *instruction);

/* Completes a collective with `result`, the term of all participants' operands. */
void clt_symbolic_complete(clt_symbolic_device *device, clt_symbolic_request *request,
                           uint64_t result);

/* Returns NULL, or a text that says what is missing at the program's end. */
const char *clt_symbolic_missing(const clt_symbolic_device *device);

/* Returns a term of everything that the program leaves. */
uint64_t clt_symbolic_final(const clt_symbolic_device *device);

uint64_t clt_term(uint64_t tag, uint64_t a, uint64_t b);

#endif
