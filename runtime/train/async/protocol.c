#include "train/async/protocol.h"

#include <endian.h>
#include <string.h>

#include "base/error.h"

/* "clt" and the version of the protocol. */
static const uint32_t MAGIC = 0x636c7402;

static uint8_t *put32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static uint8_t *put64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static uint8_t *put_double(uint8_t *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put64(at, bits);
}

static uint32_t get32(const uint8_t **at)
{
    uint32_t value;
    memcpy(&value, *at, sizeof value);
    *at += sizeof value;
    return le32toh(value);
}

static uint64_t get64(const uint8_t **at)
{
    uint64_t value;
    memcpy(&value, *at, sizeof value);
    *at += sizeof value;
    return le64toh(value);
}

static double get_double(const uint8_t **at)
{
    const uint64_t bits = get64(at);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

size_t clt_async_encode(const clt_async_message *m, uint8_t *bytes)
{
    const size_t length = strnlen(m->text, sizeof m->text - 1);
    const int64_t numbers[] = {m->sequence, m->lease,   m->epoch,    m->offset,
                               m->count,    m->version, m->staleness};
    uint8_t *at = put32(bytes, MAGIC);
    at = put32(at, (uint32_t)m->kind);
    at = put32(at, (uint32_t)m->number);
    at = put32(at, (uint32_t)length);
    at = put64(at, m->who);
    at = put64(at, m->hash);
    at = put64(at, m->seed);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        at = put64(at, (uint64_t)numbers[i]);
    at = put_double(at, m->loss);
    at = put_double(at, m->squares);
    memcpy(at, m->text, length);
    return CLT_MSG_FIXED + length;
}

clt_status clt_async_decode(const void *bytes, size_t size, clt_async_message *out)
{
    clt_async_message m = {0};
    const uint8_t *at = bytes;
    if (size < CLT_MSG_FIXED || size > CLT_MSG_MOST)
        return clt_fail(CLT_FORMAT, "a message has a header of %zu bytes", size);
    if (get32(&at) != MAGIC)
        return clt_fail(CLT_FORMAT, "a message is not of this version of cltrain");
    const uint32_t kind = get32(&at);
    m.number = (int32_t)get32(&at);
    const uint32_t length = get32(&at);
    if (kind < CLT_MSG_HELLO || kind >= CLT_MSG_KINDS || length != size - CLT_MSG_FIXED)
        return clt_fail(CLT_FORMAT, "a message of kind %u has a text of %u bytes in %zu", kind,
                        length, size);
    m.kind = (clt_async_kind)kind;
    m.who = get64(&at);
    m.hash = get64(&at);
    m.seed = get64(&at);
    int64_t *const numbers[] = {&m.sequence, &m.lease,   &m.epoch,    &m.offset,
                                &m.count,    &m.version, &m.staleness};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        *numbers[i] = (int64_t)get64(&at);
        if (*numbers[i] < 0)
            return clt_fail(CLT_FORMAT, "a message of kind %u has a negative number", kind);
    }
    m.loss = get_double(&at);
    m.squares = get_double(&at);
    memcpy(m.text, at, length);
    if (strlen(m.text) != length)
        return clt_fail(CLT_FORMAT, "a message of kind %u has a 0 in its text", kind);
    *out = m;
    return CLT_OK;
}

const char *clt_async_verdict_name(clt_async_verdict verdict)
{
    static const char *const names[] = {"applied", "discarded", "nonfinite", "unknown"};
    return verdict < CLT_PUSH_VERDICTS ? names[verdict] : "?";
}
