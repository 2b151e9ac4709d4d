/* The payloads of messages: rows of tables, and elements of a holder's range. */
#ifndef CLT_TRAIN_ASYNC_PAYLOAD_H
#define CLT_TRAIN_ASYNC_PAYLOAD_H

#include <stddef.h>

#include "train/async/layout.h"

/* The rows of all tables of a layout, by parameter. Start with clt_rows_init. */
typedef struct clt_rows {
    clt_async_rows *of;
    int count;
} clt_rows;

clt_status clt_rows_init(const clt_async_layout *layout, clt_rows *rows);
void clt_rows_free(clt_rows *rows);

/* Returns the bytes of the rows in a payload: for each table a number, and so many rows. */
size_t clt_rows_bytes(const clt_async_layout *layout, const clt_rows *rows);
void clt_rows_write(const clt_async_layout *layout, const clt_rows *rows, void *payload);

/* Reads rows from the front of a payload, and says how many bytes they take. Errors: FORMAT (too
 * few bytes, rows that the table lacks or that do not ascend). */
clt_status clt_rows_read(const clt_async_layout *layout, const void *payload, size_t bytes,
                         clt_rows *rows, size_t *used);

/* What of a range travels. Of tables only the rows of the batch ever do. */
typedef enum clt_travels {
    CLT_TRAVELS_GRADIENT, /* trained parameters */
    CLT_TRAVELS_BATCH,    /* what changes, or what only this batch reads: also frozen tables */
    CLT_TRAVELS_FIRST     /* for a new worker: also the other frozen parameters */
} clt_travels;

/* Returns the number of elements that travel. */
int64_t clt_payload_elements(const clt_async_layout *layout, int holder, const clt_rows *rows,
                             clt_travels what);

/* Copies a holder's range to a message. */
void clt_payload_pack(const clt_async_layout *layout, int holder, const clt_rows *rows,
                      clt_travels what, const float *range, float *message);

/* Copies a message to a holder's range. `clear`: other rows of tables become 0. */
void clt_payload_unpack(const clt_async_layout *layout, int holder, const clt_rows *rows,
                        clt_travels what, const float *message, bool clear, float *range);

#endif
