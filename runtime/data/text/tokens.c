/*
 * Data sets of tokens. A sample is a window of `length` tokens, and the same window one token later
 * as its targets. Fixed windows begin at multiples of `length` in their file.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "data/text/tokens.h"

enum { DEFAULT_LENGTH = 1024, BYTE_VALUES = 256, HASHED = 1 << 16 };

/* Tokens to read at once: of a sample, on the stack, and of whole files. */
enum { PART = 4096, SCANNED = 1 << 17 };

/* If files have more bytes together, their tokens are checked only when they are used. */
static const int64_t MOST_CHECKED = 1 << 30;

static void tokens_free(void *payload)
{
    clt_tokens *t = payload;
    if (t)
        clt_tokens_drop_files(t);
    clt_free(t);
}

/* --- vocabulary ------------------------------------------------------------------------------- */

static clt_status out_of_vocabulary(const clt_tokens *t, const clt_shard *s, int64_t token,
                                    int64_t position)
{
    return clt_fail(CLT_FORMAT,
                    "%s: token %lld at position %lld is out of the vocabulary: 0 to %lld", s->path,
                    (long long)token, (long long)position, (long long)t->vocabulary - 1);
}

static int64_t largest_in(const unsigned char *raw, int width, int64_t n)
{
    int64_t largest = 0;
    if (width == 2) { /* the usual case, in a loop that the compiler vectorises */
        uint16_t most = 0, token;
        for (int64_t i = 0; i < n; i++) {
            memcpy(&token, raw + 2 * i, 2);
            most = token > most ? token : most;
        }
        return most;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t token = clt_token_at(raw, width, i);
        largest = token > largest ? token : largest;
    }
    return largest;
}

/* Raises *largest to the file's largest token. Stops at the first token of at least `limit`:
 * *largest is then this token and *position its place. Otherwise *position is -1. */
static clt_status scan_file(const clt_shard *s, int64_t limit, unsigned char *raw, int64_t *largest,
                            int64_t *position)
{
    *position = -1;
    for (int64_t n, i = 0; i < s->count; i += n) {
        n = s->count - i < SCANNED ? s->count - i : SCANNED;
        CLT_TRY(clt_shard_read(s, s->header + i * s->width, raw, n * s->width));
        const int64_t most = largest_in(raw, s->width, n);
        *largest = most > *largest ? most : *largest;
        for (int64_t k = 0; most >= limit; k++) {
            const int64_t token = clt_token_at(raw, s->width, k);
            if (token < limit)
                continue;
            *largest = token;
            *position = i + k;
            return CLT_OK;
        }
    }
    return CLT_OK;
}

static clt_status largest_token(const clt_tokens *t, unsigned char *raw, int64_t *largest)
{
    int64_t position;
    *largest = 0;
    for (int i = 0; i < t->n_shards; i++)
        CLT_TRY(scan_file(&t->shards[i], INT64_MAX, raw, largest, &position));
    return CLT_OK;
}

/* Checks all tokens before training if reading them does not take long. */
static clt_status check_tokens(const clt_tokens *t, unsigned char *raw)
{
    int64_t bytes = 0;
    for (int i = 0; i < t->n_shards; i++)
        bytes += t->shards[i].bytes < MOST_CHECKED ? t->shards[i].bytes : MOST_CHECKED + 1;
    for (int i = 0; bytes <= MOST_CHECKED && i < t->n_shards; i++) {
        int64_t largest = 0, position;
        CLT_TRY(scan_file(&t->shards[i], t->vocabulary, raw, &largest, &position));
        if (position >= 0)
            return out_of_vocabulary(t, &t->shards[i], largest, position);
    }
    return CLT_OK;
}

/* Finds or checks the vocabulary. `raw` has room for SCANNED tokens. */
static clt_status scan_files(clt_tokens *t, const clt_data_request *r, unsigned char *raw)
{
    if (t->vocabulary)
        return check_tokens(t, raw);
    int64_t largest;
    CLT_TRY(largest_token(t, raw, &largest));
    t->vocabulary = largest + 1;
    return t->vocabulary <= INT32_MAX
               ? CLT_OK
               : clt_fail(CLT_FORMAT, "%s: token %lld does not fit in 31 bits", r->path,
                          (long long)t->vocabulary - 1);
}

static clt_status find_vocabulary(clt_tokens *t, const clt_data_request *r)
{
    t->vocabulary = r->options->classes;
    if (t->text) {
        if (t->vocabulary && t->vocabulary < BYTE_VALUES)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "data '%s': a vocabulary of %lld is too small for bytes: at least %d",
                            r->spec, (long long)t->vocabulary, BYTE_VALUES);
        t->vocabulary = t->vocabulary ? t->vocabulary : BYTE_VALUES;
        return CLT_OK;
    }
    for (int i = 0; i < t->n_shards && !r->options->classes; i++) {
        int64_t size;
        CLT_TRY(clt_tokens_read_vocabulary(&t->shards[i], &size));
        if (i && size != t->vocabulary)
            return clt_fail(CLT_FORMAT,
                            "%s: its vocabulary has %lld tokens, that of %s %lld (0: its file does "
                            "not say); all must be equal",
                            t->shards[i].path, (long long)size, t->shards[0].path,
                            (long long)t->vocabulary);
        t->vocabulary = size;
    }
    unsigned char *raw = clt_alloc(4 * SCANNED);
    const clt_status status = raw ? scan_files(t, r, raw) : CLT_OUT_OF_MEMORY;
    clt_free(raw);
    return status;
}

/* --- samples ---------------------------------------------------------------------------------- */

/* Finds the shard of a sample number, or of a start of random windows (`place`). */
static const clt_shard *shard_of(const clt_tokens *t, int64_t number, bool place)
{
    int low = 0, high = t->n_used - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        const clt_shard *s = &t->shards[middle];
        if (number < (place ? s->places : s->first + s->windows))
            high = middle;
        else
            low = middle + 1;
    }
    return &t->shards[low];
}

/* Draws random number `block` of an epoch, below `n`. */
static int64_t draw(const clt_sample_key *key, uint32_t sub, int64_t block, int64_t n)
{
    uint32_t bits[4];
    clt_random4(clt_random_seed(key->seed, key->epoch), CLT_STREAM_WINDOWS, sub,
                (uint32_t)key->epoch, (uint64_t)block, bits);
    __extension__ typedef unsigned __int128 wide;
    return (int64_t)((wide)((uint64_t)bits[0] << 32 | bits[1]) * (uint64_t)n >> 64);
}

/* Returns the file of a sample, and in *begin the sample's first token. *continues: the sample
 * `rows` before it ends there. */
static const clt_shard *place_window(const clt_tokens *t, const clt_sample_key *key, int64_t index,
                                     int64_t *begin, bool *continues)
{
    enum { SHIFT = 0, ANYWHERE = 1 };
    const bool first = index < t->rows;
    *continues = false;
    if (t->windows == CLT_WINDOWS_RANDOM) {
        const int64_t place = draw(key, ANYWHERE, index, t->shards[t->n_used - 1].places);
        const clt_shard *s = shard_of(t, place, true);
        *begin = s->end - t->length - (s->places - place);
        return s;
    }
    if (t->windows == CLT_WINDOWS_CONTINUED)
        index = index % t->rows * t->each + index / t->rows;
    const clt_shard *s = shard_of(t, index, false);
    *continues = t->windows == CLT_WINDOWS_CONTINUED && !first && index > s->first;
    *begin = s->begin + (index - s->first) * t->length;
    if (t->windows == CLT_WINDOWS_SHIFTED) {
        *begin += draw(key, SHIFT, s - t->shards, t->length);
        /* The last window may have no room after the shift. It then takes the tokens at the start
         * that the shift left out. */
        if (*begin + t->length >= s->end)
            *begin = s->begin;
    }
    return s;
}

static clt_status fetch(clt_dataset *dataset, const clt_sample_key *key, int64_t index,
                        void *const *fields)
{
    const clt_tokens *t = dataset->payload;
    int64_t begin;
    bool continues;
    const clt_shard *s = place_window(t, key, index, &begin, &continues);
    int32_t *inputs = fields[0], *targets = fields[1];
    if (t->tells && fields[2])
        *(float *)fields[2] = continues;
    unsigned char raw[4 * PART];
    for (int64_t n, first = 0; first <= t->length; first += n) {
        n = t->length + 1 - first < PART ? t->length + 1 - first : PART;
        CLT_TRY(clt_shard_read(s, s->header + (begin + first) * s->width, raw, n * s->width));
        for (int64_t k = 0; k < n; k++) {
            const int64_t token = clt_token_at(raw, s->width, k), i = first + k;
            if (token >= t->vocabulary)
                return out_of_vocabulary(t, s, token, begin + i);
            if (inputs && i < t->length)
                inputs[i] = (int32_t)token;
            if (targets && i > 0)
                targets[i - 1] = (int32_t)token;
        }
    }
    return CLT_OK;
}

/* Limits the file to the windows of the split. */
static clt_status divide(clt_tokens *t, const clt_data_request *r, int64_t *count)
{
    clt_shard *s = &t->shards[0];
    int64_t first;
    CLT_TRY(clt_data_tenths(r->path, s->windows, r->test, &first, count));
    s->begin = first * t->length;
    s->windows = *count;
    s->end = s->begin + s->windows * t->length + 1;
    s->places = s->end - s->begin - t->length;
    return CLT_OK;
}

static clt_status count_samples(clt_tokens *t, const clt_data_request *r, bool divided,
                                int64_t *count)
{
    int64_t total = 0, all = 0, places = 0;
    for (int i = 0; i < t->n_shards; i++) {
        clt_shard s = t->shards[i];
        all += s.count;
        if (s.count <= t->length) /* too few tokens for a sample */
            continue;
        s.first = total;
        s.end = s.count;
        s.windows = (s.count - 1) / t->length;
        total += s.windows;
        s.places = places += s.count - t->length;
        t->shards[i] = t->shards[t->n_used];
        t->shards[t->n_used++] = s;
    }
    if (!total)
        return clt_fail(CLT_FORMAT,
                        "%s: %lld tokens, but a sample needs %lld: give shorter samples", r->path,
                        (long long)all, (long long)t->length + 1);
    *count = total;
    return divided ? divide(t, r, count) : CLT_OK;
}

/* Divides the windows among the rows of a batch. Windows that fill no whole batch are left out. */
static clt_status divide_rows(clt_tokens *t, const clt_data_request *r, int64_t *count)
{
    t->rows = r->options->rows;
    t->each = *count / t->rows;
    if (!t->each)
        return clt_fail(CLT_FORMAT,
                        "%s: %lld samples of %lld tokens are fewer than a batch of %lld, in which "
                        "windows continue",
                        r->path, (long long)*count, (long long)t->length, (long long)t->rows);
    *count = t->each * t->rows;
    return CLT_OK;
}

/* Adds a file to the content hash, by which a resumed run notices other data. */
static clt_status add_content(clt_dataset *d, const clt_shard *s)
{
    const int64_t bytes = s->bytes < HASHED ? s->bytes : HASHED;
    unsigned char *raw = bytes ? clt_alloc((size_t)bytes) : NULL;
    if (bytes && !raw)
        return CLT_OUT_OF_MEMORY;
    const clt_status status = bytes ? clt_shard_read(s, 0, raw, bytes) : CLT_OK;
    d->content = clt_hash(&s->count, sizeof s->count, d->content);
    if (bytes && status == CLT_OK)
        d->content = clt_hash(raw, (size_t)bytes, d->content);
    clt_free(raw);
    return status;
}

static clt_status make(clt_tokens *t, const clt_data_request *r, int64_t count, clt_dataset **out)
{
    static const char *const names[] = {"tokens", "targets"};
    static const char *const changes[] = {NULL, "windows shifted", "windows at random"};
    clt_dataset *d;
    const clt_status made = clt_dataset_new_fetched(r->name, count, fetch, t, tokens_free, &d);
    if (made != CLT_OK) {
        tokens_free(t);
        return made;
    }
    snprintf(t->changes, sizeof t->changes, "windows continued by %lld", (long long)t->rows);
    d->changes = t->windows == CLT_WINDOWS_CONTINUED ? t->changes : changes[t->windows];
    clt_status status = CLT_OK;
    for (int f = 0; f < 2 && status == CLT_OK; f++) {
        status =
            clt_dataset_add_field(d, names[f], CLT_I32, 1, &t->length, NULL, CLT_DATA_BORROW, NULL);
        CLT_NEXT(status, clt_dataset_set_classes(d, f, t->vocabulary));
    }
    if (status == CLT_OK && t->tells)
        status =
            clt_dataset_add_field(d, "continues", CLT_F32, 0, NULL, NULL, CLT_DATA_BORROW, NULL);
    for (int i = 0; i < t->n_shards && status == CLT_OK; i++)
        status = add_content(d, &t->shards[i]);
    if (status == CLT_OK)
        *out = d;
    else
        clt_dataset_free(d);
    return status;
}

static clt_status open_windows(const clt_data_request *r, bool text, clt_dataset **out)
{
    clt_tokens *t = CLT_NEW(clt_tokens);
    CLT_TRY_MEMORY(t);
    t->text = text;
    t->tells = r->options->windows == CLT_WINDOWS_CONTINUED;
    const bool separate = r->test || (t->tells && !r->options->rows);
    t->windows = separate ? CLT_WINDOWS_FIXED : r->options->windows;
    t->length = r->options->sequence ? r->options->sequence : DEFAULT_LENGTH;
    int64_t count = 0;
    bool divided;
    clt_status status = clt_tokens_add_files(t, r, &divided);
    CLT_NEXT(status, count_samples(t, r, divided, &count));
    if (status == CLT_OK && t->windows == CLT_WINDOWS_CONTINUED)
        status = divide_rows(t, r, &count);
    CLT_NEXT(status, find_vocabulary(t, r));
    if (status != CLT_OK) {
        tokens_free(t);
        return status;
    }
    return make(t, r, count, out);
}

clt_status clt_open_tokens(const clt_data_request *r, clt_dataset **out)
{
    return open_windows(r, false, out);
}

clt_status clt_open_text(const clt_data_request *r, clt_dataset **out)
{
    return open_windows(r, true, out);
}
