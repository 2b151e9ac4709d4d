#include "device/program/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <cltrain/unstable.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/vec.h"
#include "device/program/program_cache.h"
#include "device/program/source_tokens.h"

/* One row for each program, identified by `name` and `options`, and by the text's hash if the
 * caller gave a text. */
typedef struct program_row {
    char *name, *options;
    uint64_t text_hash; /* 0: embedded file */
    bool building;      /* a thread builds it: wait for `changed` */
    clt_status status;
    char *message; /* message of a failed build, which is not tried again */
    cl_program program;
    clt_cache_key key;
    uint64_t hash;  /* of source, options and device; equal with and without own declarations */
    bool store;     /* still to be written to the cache folder */
    char **kernels; /* names of the kernels that were created from it */
    int n_kernels, kernel_room;
} program_row;

struct clt_program_table {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    double created;     /* time of clt_clock() */
    program_row **rows; /* pointers, since the array moves while rows are built */
    int count, room;
};

clt_status clt_program_table_create(clt_program_table **out)
{
    clt_program_table *table = CLT_NEW(clt_program_table);
    CLT_TRY_MEMORY(table);
    pthread_mutex_init(&table->lock, NULL);
    pthread_cond_init(&table->changed, NULL);
    table->created = clt_clock();
    *out = table;
    return CLT_OK;
}

static void free_row(program_row *row)
{
    if (row->program) {
        clReleaseProgram(row->program);
        clt_object_released(CLT_OBJECT_PROGRAM);
    }
    for (int i = 0; i < row->n_kernels; i++)
        clt_free(row->kernels[i]);
    CLT_FREE(row->kernels, row->name, row->options, row->message, row);
}

double clt_program_table_seconds(const clt_program_table *table)
{
    return clt_clock() - table->created;
}

double clt_program_store_seconds(double open)
{
    enum { MOST = 3, SHARE = 50 };
    return open / SHARE < MOST ? open / SHARE : MOST;
}

void clt_program_table_store(clt_device *device, double seconds)
{
    clt_program_table *table = device->programs;
    const double end = clt_clock() + seconds;
    for (int i = 0; i < table->count && clt_clock() < end; i++) {
        program_row *row = table->rows[i];
        if (row->store)
            clt_program_cache_store(device, &row->key, row->program);
        row->store = false;
    }
}

void clt_program_table_destroy(clt_program_table *table)
{
    if (!table)
        return;
    for (int i = 0; i < table->count; i++)
        free_row(table->rows[i]);
    clt_free(table->rows);
    pthread_cond_destroy(&table->changed);
    pthread_mutex_destroy(&table->lock);
    clt_free(table);
}

static clt_status add_row(clt_program_table *table, const char *name, const char *options,
                          uint64_t text_hash, program_row **out)
{
    program_row *row = CLT_NEW(program_row);
    CLT_TRY_MEMORY(row);
    row->name = clt_strdup(name);
    row->options = clt_strdup(options);
    row->text_hash = text_hash;
    row->building = true;
    if (!row->name || !row->options ||
        CLT_PUSH(table->rows, table->count, table->room, row) != CLT_OK) {
        free_row(row);
        return CLT_OUT_OF_MEMORY;
    }
    *out = row;
    return CLT_OK;
}

static pthread_mutex_t serial_lock = PTHREAD_MUTEX_INITIALIZER;

static clt_status compile(clt_device *device, program_row *row, const char *source,
                          const char *options)
{
    const bool serial = device->quirks & CLT_QUIRK_SERIAL_BUILD;
    if (serial)
        pthread_mutex_lock(&serial_lock);
    clt_status status = clt_program_build(device, row->name, source, options, &row->program);
    if (serial)
        pthread_mutex_unlock(&serial_lock);
    return status;
}

/* Whether to build the program with core/builtins.clh in place of the driver's header. */
static bool has_own_declarations(const clt_device *device, const char *options, const char *name,
                                 const char *text)
{
    return device->quirks & CLT_QUIRK_OWN_DECLARATIONS &&
           (!text || !strcmp(name, CLT_MERGED_FILE)) && !strstr(options, CLT_STANDARD_OPTION);
}

/* Compiles the program, or reads it from the cache folder. */
static clt_status make_program(clt_device *device, program_row *row, const char *source,
                               const char *options)
{
    row->key = clt_cache_key_make(device, options, source);
    if (!clt_program_cache_load(device, &row->key, options, &row->program)) {
        CLT_TRY(compile(device, row, source, options));
        row->store = true;
    }
    if (row->store && !(device->quirks & CLT_QUIRK_LATE_COMPILE)) {
        clt_program_cache_store(device, &row->key, row->program);
        row->store = false;
    }
    return CLT_OK;
}

/* Writes what the driver compiles. *hash is equal with and without own declarations. */
static clt_status compose(clt_device *device, const char *name, const char *own_options,
                          const char *text, bool own_declarations, clt_str *source,
                          clt_str *options, uint64_t *hash)
{
    clt_str plain = {0};
    clt_str_add(options, "%s%s%s%s",
                strstr(own_options, CLT_STANDARD_OPTION) ? CLT_OTHER_COMMON_OPTIONS
                                                         : CLT_COMMON_OPTIONS,
                device->quirks & CLT_QUIRK_BUILTINS ? " " CLT_BUILTINS_OPTION : "",
                own_options[0] ? " " : "", own_options);
    clt_status status = clt_source_resolve(name, text, &plain);
    if (status == CLT_OK && (options->failed || plain.failed))
        status = CLT_OUT_OF_MEMORY;
    if (status == CLT_OK)
        *hash = clt_cache_key_make(device, clt_str_text(options), plain.text).hash[0];
    if (status == CLT_OK && own_declarations) {
        status = clt_source_resolve("core/builtins.clh", NULL, source);
        clt_str_add(options, " %s", CLT_OWN_DECLARATIONS_OPTIONS);
    }
    clt_str_add(source, "%s", clt_str_text(&plain));
    clt_str_free(&plain);
    if (status == CLT_OK && (options->failed || source->failed))
        status = CLT_OUT_OF_MEMORY;
    return status;
}

static clt_status build_text(clt_device *device, program_row *row, const char *text,
                             bool own_declarations)
{
    clt_str source = {0}, options = {0};
    clt_status status = compose(device, row->name, row->options, text, own_declarations, &source,
                                &options, &row->hash);
    CLT_NEXT(status, make_program(device, row, clt_str_text(&source), clt_str_text(&options)));
    clt_str_free(&source);
    clt_str_free(&options);
    return status;
}

/* Builds a program. The table is not locked, so several threads build different rows. If the
 * driver's header is not the one for which core/builtins.clh was written, the program is built with
 * the driver's header. */
static clt_status build_row(clt_device *device, program_row *row, const char *text)
{
    if (!has_own_declarations(device, row->options, row->name, text))
        return build_text(device, row, text, false);
    clt_status status = build_text(device, row, text, true);
    if (status != CLT_BUILD)
        return status;
    char *message = clt_strdup(clt_error_message());
    status = build_text(device, row, text, false);
    if (status == CLT_OK) {
        atomic_fetch_and(&device->quirks, ~CLT_QUIRK_OWN_DECLARATIONS);
        clt_log(CLT_LOG_WARN, "%s: builds with the driver's header only: %s", device->label,
                message ? message : "out of memory");
    }
    clt_free(message);
    return status;
}

static uint64_t hash_text(const char *text)
{
    return text ? clt_hash_text(text, 1) | 1 : 0;
}

clt_status clt_program_get(clt_device *device, const char *name, const char *text,
                           const char *options, cl_program *program, uint64_t *hash)
{
    clt_program_table *table = device->programs;
    program_row *row = NULL;
    const uint64_t text_hash = hash_text(text);
    if (!options)
        options = "";
    pthread_mutex_lock(&table->lock);
    for (int i = 0; i < table->count && !row; i++) {
        program_row *r = table->rows[i];
        if (r->text_hash == text_hash && !strcmp(r->name, name) && !strcmp(r->options, options))
            row = r;
    }
    if (row) {
        while (row->building)
            pthread_cond_wait(&table->changed, &table->lock);
    } else {
        clt_status status = add_row(table, name, options, text_hash, &row);
        if (status != CLT_OK) {
            pthread_mutex_unlock(&table->lock);
            return status;
        }
        pthread_mutex_unlock(&table->lock);
        status = build_row(device, row, text);
        char *message = status == CLT_OK ? NULL : clt_strdup(clt_error_message());
        pthread_mutex_lock(&table->lock);
        row->status = status;
        row->message = message;
        row->building = false;
        pthread_cond_broadcast(&table->changed);
    }
    clt_status status = row->status;
    if (status == CLT_OK) {
        if (program)
            *program = row->program;
        if (hash)
            *hash = row->hash;
    } else if (row->message) {
        clt_error_restore(row->message);
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}

/* Remembers the kernel's name for clt_device_kernel_count. */
static clt_status note_kernel(clt_program_table *table, cl_program program, const char *kernel)
{
    clt_status status = CLT_OK;
    pthread_mutex_lock(&table->lock);
    program_row *row = NULL;
    for (int i = 0; i < table->count; i++)
        if (table->rows[i]->program == program)
            row = table->rows[i];
    bool known = !row;
    for (int i = 0; row && i < row->n_kernels; i++)
        known = known || !strcmp(row->kernels[i], kernel);
    if (!known) {
        char *name = clt_strdup(kernel);
        status = name ? CLT_PUSH(row->kernels, row->n_kernels, row->kernel_room, name)
                      : CLT_OUT_OF_MEMORY;
        if (status != CLT_OK)
            clt_free(name);
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}

void clt_device_kernel_count(const clt_device *device, int *programs, int *kernels)
{
    clt_program_table *table = device->programs;
    pthread_mutex_lock(&table->lock);
    *programs = *kernels = 0;
    for (int i = 0; i < table->count; i++) {
        *programs += table->rows[i]->program != NULL;
        *kernels += table->rows[i]->n_kernels;
    }
    pthread_mutex_unlock(&table->lock);
}

/* Whether the program of the key has only this kernel. */
static bool has_one_kernel(const clt_program_key *key)
{
    const char *text = key->text ? NULL : clt_source_find(key->file);
    return key->kernel && text && clt_has_token(text, "CLT_HAS");
}

/* Appends the build options of the key's program. */
static void add_options(const clt_program_key *key, clt_str *options)
{
    clt_str_add(options, "%s", key->options ? key->options : "");
    if (has_one_kernel(key))
        clt_str_add(options, "%s-DCLT_ONE_KERNEL=1 -DCLT_IS_%s=1",
                    key->options && key->options[0] ? " " : "", key->kernel);
}

clt_status clt_program_compose(clt_device *device, const clt_program_key *key, clt_str *source,
                               clt_str *options)
{
    clt_str own = {0};
    uint64_t hash;
    add_options(key, &own);
    clt_status status = own.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
    const bool declares = has_own_declarations(device, clt_str_text(&own), key->file, key->text);
    CLT_NEXT(status, compose(device, key->file, clt_str_text(&own), key->text, declares, source,
                             options, &hash));
    clt_str_free(&own);
    return status;
}

clt_status clt_program_get_for(clt_device *device, const clt_program_key *key, cl_program *program)
{
    clt_str options = {0};
    add_options(key, &options);
    clt_status status = options.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
    CLT_NEXT(status,
             clt_program_get(device, key->file, key->text, clt_str_text(&options), program, NULL));
    clt_str_free(&options);
    return status;
}

bool clt_program_is_new(clt_device *device, const clt_program_key *key)
{
    clt_program_table *table = device->programs;
    const uint64_t hash = hash_text(key->text);
    clt_str options = {0};
    bool known = false;
    add_options(key, &options);
    pthread_mutex_lock(&table->lock);
    for (int i = 0; i < table->count && !known; i++) {
        const program_row *r = table->rows[i];
        known = !r->building && r->text_hash == hash && !strcmp(r->name, key->file) &&
                !strcmp(r->options, clt_str_text(&options));
    }
    pthread_mutex_unlock(&table->lock);
    clt_str_free(&options);
    return !known;
}

bool clt_program_keys_equal(const clt_program_key *a, const clt_program_key *b)
{
    const char *of_a = a->options ? a->options : "", *of_b = b->options ? b->options : "";
    if (strcmp(a->file, b->file) || strcmp(of_a, of_b) || !a->text != !b->text ||
        (a->text && strcmp(a->text, b->text)))
        return false;
    if (!a->kernel || !b->kernel || !strcmp(a->kernel, b->kernel))
        return !a->kernel == !b->kernel;
    return !has_one_kernel(a);
}

/* Creates a kernel object of the program. `name` and `options` are for messages. */
static clt_status take_kernel(clt_device *device, cl_program program, const char *name,
                              const char *options, const char *kernel, cl_kernel *out)
{
    cl_int code = CL_SUCCESS;
    cl_kernel made = clCreateKernel(program, kernel, &code);
    if (code == CL_INVALID_KERNEL_NAME)
        return clt_fail(CLT_NOT_FOUND, "kernel file %s (options \"%s\") has no kernel %s", name,
                        options ? options : "", kernel);
    if (code != CL_SUCCESS)
        return clt_fail_prefix(clt_cl_fail(code, "clCreateKernel", device),
                               "kernel %s of %s: ", kernel, name);
    clt_object_created(CLT_OBJECT_KERNEL);
    const clt_status status = note_kernel(device->programs, program, kernel);
    if (status != CLT_OK) {
        clt_release_kernel(made);
        return status;
    }
    *out = made;
    return CLT_OK;
}

clt_status clt_device_kernel_from_text(clt_device *device, const char *name, const char *text,
                                       const char *options, const char *kernel, cl_kernel *out)
{
    cl_program program = NULL;
    CLT_TRY(clt_program_get(device, name, text, options, &program, NULL));
    return take_kernel(device, program, name, options, kernel, out);
}

clt_status clt_device_kernel(clt_device *device, const char *file, const char *options,
                             const char *kernel, cl_kernel *out)
{
    const clt_program_key key = {file, options, kernel, NULL};
    cl_program program = NULL;
    CLT_TRY(clt_program_get_for(device, &key, &program));
    return take_kernel(device, program, file, options, kernel, out);
}

clt_status clt_device_program_hash(clt_device *device, const char *file, const char *options,
                                   uint64_t *hash)
{
    return clt_program_get(device, file, NULL, options, NULL, hash);
}
