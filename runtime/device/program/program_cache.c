#include "device/program/program_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "device/program/cache_file.h"

static const char folder_part[] = "programs";

typedef struct file_head {
    char magic[8];
    uint64_t key[2];
    uint64_t bytes, hash; /* of the content after this head */
} file_head;

static const char magic[8] = "CLTPRG1";

enum { NAME_BYTES = 48 };

/* Upper limit for all programs together. */
#define MOST_BYTES ((int64_t)256 << 20)

clt_cache_key clt_cache_key_make(const clt_device *device, const char *options, const char *source)
{
    clt_cache_key key;
    for (int i = 0; i < 2; i++) {
        key.hash[i] = clt_hash_text(options, device->identity + (uint64_t)i);
        key.hash[i] = clt_hash_text(source, key.hash[i]);
    }
    return key;
}

/* Whether programs in the folder may be run: a user who can write there could make this process run
 * any code. Warns once. */
static bool is_trusted(const clt_device *device)
{
    static _Atomic bool said;
    if (clt_cache_check(device->cache_dir, folder_part) == CLT_OK)
        return true;
    if (!atomic_exchange(&said, true))
        clt_log(CLT_LOG_WARN, "%s", clt_error_message());
    return false;
}

static bool is_used(const clt_device *device)
{
    return device->cache_dir && !(device->quirks & CLT_QUIRK_NO_BINARIES) && is_trusted(device);
}

static void make_name(const clt_cache_key *key, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016" PRIx64 "%016" PRIx64 ".bin", key->hash[0], key->hash[1]);
}

static bool head_fits(const file_head *head, const clt_cache_key *key, const char *content,
                      size_t bytes)
{
    return !memcmp(head->magic, magic, sizeof magic) && head->key[0] == key->hash[0] &&
           head->key[1] == key->hash[1] && head->bytes == bytes &&
           head->hash == clt_hash(content, bytes, 0);
}

static bool build_binary(clt_device *device, const char *content, size_t bytes, const char *options,
                         cl_program *out)
{
    const unsigned char *binary = (const unsigned char *)content;
    cl_int state = CL_SUCCESS, code = CL_SUCCESS;
    cl_program program =
        clCreateProgramWithBinary(device->context, 1, &device->id, &bytes, &binary, &state, &code);
    if (code != CL_SUCCESS || !program)
        return false;
    clt_object_created(CLT_OBJECT_PROGRAM);
    if (state == CL_SUCCESS)
        state = clBuildProgram(program, 1, &device->id, options, NULL, NULL);
    if (state != CL_SUCCESS) {
        clReleaseProgram(program);
        clt_object_released(CLT_OBJECT_PROGRAM);
        return false;
    }
    *out = program;
    return true;
}

bool clt_program_cache_load(clt_device *device, const clt_cache_key *key, const char *options,
                            cl_program *out)
{
    char name[NAME_BYTES], *data = NULL;
    size_t bytes = 0;
    file_head head;
    if (!is_used(device))
        return false;
    make_name(key, name);
    if (!clt_cache_read_private(device->cache_dir, folder_part, name, &data, &bytes)) {
        clt_cache_remove(device->cache_dir, folder_part, name);
        return false;
    }
    bool ok = bytes > sizeof head;
    if (ok) {
        memcpy(&head, data, sizeof head);
        ok = head_fits(&head, key, data + sizeof head, bytes - sizeof head);
    }
    ok = ok && build_binary(device, data + sizeof head, bytes - sizeof head, options, out);
    if (!ok) {
        clt_log(CLT_LOG_INFO, "cached program %s is damaged or stale: compiling again", name);
        clt_cache_remove(device->cache_dir, folder_part, name);
    }
    clt_free(data);
    return ok;
}

/* Gets this device's binary of a program that may have been made for several devices. PoCL names
 * the root of a part. */
static unsigned char *get_binary(clt_device *device, cl_program program, size_t *bytes)
{
    enum { MOST = 64 };
    cl_device_id ids[MOST];
    size_t sizes[MOST], used = 0;
    unsigned char *binaries[MOST] = {NULL}, *wanted = NULL;
    if (clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof ids, ids, &used) != CL_SUCCESS ||
        clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL) != CL_SUCCESS)
        return NULL;
    const size_t count = used / sizeof ids[0];
    for (size_t i = 0; i < count; i++) {
        if ((ids[i] != device->id && ids[i] != device->root) || !sizes[i] || wanted)
            continue;
        wanted = binaries[i] = clt_alloc(sizes[i]);
        *bytes = sizes[i];
    }
    if (wanted && clGetProgramInfo(program, CL_PROGRAM_BINARIES, count * sizeof binaries[0],
                                   binaries, NULL) != CL_SUCCESS) {
        clt_free(wanted);
        wanted = NULL;
    }
    return wanted;
}

/* Warns once, not for each program. A folder without permission to write is no mistake and gives no
 * warning. */
static void warn_of_full_disk(const clt_device *device, int error)
{
    static _Atomic bool said;
    if ((error == ENOSPC || error == EDQUOT || error == EFBIG) && !atomic_exchange(&said, true))
        clt_log(CLT_LOG_WARN,
                "compiled kernels cannot be kept in %s/%s: %s; each run compiles them again",
                device->cache_dir, folder_part, strerror(error));
}

void clt_program_cache_store(clt_device *device, const clt_cache_key *key, cl_program program)
{
    if (!is_used(device))
        return;
    size_t bytes = 0;
    char name[NAME_BYTES];
    make_name(key, name);
    /* Another device or process may have written the file meanwhile. */
    if (clt_cache_exists(device->cache_dir, folder_part, name))
        return;
    unsigned char *binary = get_binary(device, program, &bytes);
    if (!binary)
        return;
    file_head head = {.key = {key->hash[0], key->hash[1]}, .bytes = bytes};
    memcpy(head.magic, magic, sizeof magic);
    head.hash = clt_hash(binary, bytes, 0);
    if (clt_cache_write(device->cache_dir, folder_part, name, &head, sizeof head, binary, bytes))
        clt_cache_trim(device->cache_dir, folder_part, MOST_BYTES);
    else
        warn_of_full_disk(device, errno);
    clt_free(binary);
}
