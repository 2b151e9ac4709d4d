/* The inside of a predictor. */
#ifndef CLT_TRAIN_FIT_PREDICTOR_H
#define CLT_TRAIN_FIT_PREDICTOR_H

#include <cltrain/predict.h>

#include "device/program/tuning_file.h"
#include "train/core/device_threads.h"
#include "train/step/interpret.h"

struct clt_predictor {
    clt_store *store;
    clt_graph *graph; /* as the user built it */
    clt_predictor_options options;
    clt_session *session;
    clt_tuning_record *tuning;         /* by device */
    const clt_tuning_record **records; /* pointers to `tuning` */
    clt_participants all;
    clt_shares shares;
    clt_step_program *programs; /* [device][load] */
    int64_t runs;
    bool has_batch, carries;
    const clt_value **outputs, **inputs; /* of `graph`, and of plans */
    int n_outputs, room_outputs, n_inputs, room_inputs;

    /* Devices that wait for each other; without collectives they do not. */
    bool connected;
    clt_exchange exchange;
    clt_device_threads *threads;
    clt_call call;
};

/* Writes and checks the programs of this process' devices, and connects the devices of all ranks if
 * p->connected. The session must exist. Collective over the ranks. */
clt_status clt_predictor_connect(clt_predictor *predictor);

void clt_predictor_disconnect(clt_predictor *predictor);

/* Runs the call on all devices. */
clt_status clt_predictor_run_devices(clt_predictor *predictor);

#endif
