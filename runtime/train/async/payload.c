#include "train/async/payload.h"

#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"

clt_status clt_rows_init(const clt_async_layout *layout, clt_rows *rows)
{
    rows->count = layout->n_parameters;
    rows->of = clt_calloc((size_t)rows->count + 1, sizeof *rows->of);
    return rows->of ? CLT_OK : CLT_OUT_OF_MEMORY;
}

void clt_rows_free(clt_rows *rows)
{
    for (int i = 0; rows->of && i < rows->count; i++)
        clt_free(rows->of[i].rows);
    clt_free(rows->of);
    *rows = (clt_rows){0};
}

size_t clt_rows_bytes(const clt_async_layout *l, const clt_rows *rows)
{
    size_t bytes = 0;
    for (int p = 0; p < l->n_parameters; p++)
        if (l->parameters[p].width)
            bytes += sizeof(uint32_t) * ((size_t)rows->of[p].count + 1);
    return bytes;
}

void clt_rows_write(const clt_async_layout *l, const clt_rows *rows, void *payload)
{
    uint8_t *at = payload;
    for (int p = 0; p < l->n_parameters; p++) {
        const clt_async_rows *r = &rows->of[p];
        const uint32_t count = (uint32_t)r->count;
        if (!l->parameters[p].width)
            continue;
        memcpy(at, &count, sizeof count);
        at += sizeof count;
        if (count)
            memcpy(at, r->rows, count * sizeof *r->rows);
        at += count * sizeof *r->rows;
    }
}

static clt_status malformed(const clt_async_tensor *t)
{
    return clt_fail(CLT_FORMAT, "a message has no proper rows of %s", t->name);
}

clt_status clt_rows_read(const clt_async_layout *l, const void *payload, size_t bytes,
                         clt_rows *rows, size_t *used)
{
    const uint8_t *at = payload;
    size_t left = bytes;
    for (int p = 0; p < l->n_parameters; p++) {
        const clt_async_tensor *t = &l->parameters[p];
        clt_async_rows *r = &rows->of[p];
        uint32_t count;
        if (!t->width)
            continue;
        if (left < sizeof count)
            return malformed(t);
        memcpy(&count, at, sizeof count);
        at += sizeof count;
        left -= sizeof count;
        const int64_t most = t->elements / t->width;
        if (count > most || count > INT32_MAX || count > left / sizeof *r->rows)
            return malformed(t);
        CLT_TRY(CLT_RESERVE(r->rows, 0, r->room, (int)count));
        if (count)
            memcpy(r->rows, at, count * sizeof *r->rows);
        r->count = (int)count;
        at += count * sizeof *r->rows;
        left -= count * sizeof *r->rows;
        for (uint32_t i = 0; i < count; i++)
            if (r->rows[i] >= most || (i && r->rows[i] <= r->rows[i - 1]))
                return malformed(t);
    }
    *used = bytes - left;
    return CLT_OK;
}

/* Returns the rows that travel of a parameter; NULL: all of it. */
static const clt_async_rows *rows_of(const clt_async_layout *l, const clt_rows *rows, int p)
{
    return l->parameters[p].width ? &rows->of[p] : NULL;
}

static bool travels(const clt_async_layout *l, int p, clt_travels what)
{
    const clt_async_tensor *t = &l->parameters[p];
    return t->trained || what == CLT_TRAVELS_FIRST || (what == CLT_TRAVELS_BATCH && t->width);
}

int64_t clt_payload_elements(const clt_async_layout *l, int holder, const clt_rows *rows,
                             clt_travels what)
{
    int64_t count = 0;
    for (int p = 0; p < l->n_parameters; p++)
        if (travels(l, p, what))
            count += clt_async_count(&l->parameters[p], clt_async_piece_of(l, holder, p),
                                     rows_of(l, rows, p));
    return count;
}

void clt_payload_pack(const clt_async_layout *l, int holder, const clt_rows *rows, clt_travels what,
                      const float *range, float *message)
{
    const int64_t begin = clt_async_cut(l, holder);
    for (int p = 0; p < l->n_parameters; p++) {
        const clt_async_tensor *t = &l->parameters[p];
        const clt_async_piece piece = clt_async_piece_of(l, holder, p);
        if (piece.from == piece.to || !travels(l, p, what))
            continue;
        message += clt_async_pick(t, piece, rows_of(l, rows, p),
                                  range + (t->begin + piece.from - begin), piece.from, message);
    }
}

void clt_payload_unpack(const clt_async_layout *l, int holder, const clt_rows *rows,
                        clt_travels what, const float *message, bool clear, float *range)
{
    const int64_t begin = clt_async_cut(l, holder);
    for (int p = 0; p < l->n_parameters; p++) {
        const clt_async_tensor *t = &l->parameters[p];
        const clt_async_piece piece = clt_async_piece_of(l, holder, p);
        float *own = range + (t->begin + piece.from - begin);
        const clt_async_rows *r = rows_of(l, rows, p);
        if (piece.from == piece.to || !travels(l, p, what))
            continue;
        if (clear && r)
            memset(own, 0, (size_t)(piece.to - piece.from) * sizeof *own);
        message += clt_async_place(t, piece, r, message, own, piece.from);
    }
}
