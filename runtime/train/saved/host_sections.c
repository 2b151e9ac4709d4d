#include "train/saved/host_sections.h"

#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"

/* In checkpoints the names begin so: no section of the library does. */
static const char PREFIX[] = "host.";
enum { PREFIX_LENGTH = sizeof PREFIX - 1, MOST_NAME = 100 };

static clt_host_section *find(const clt_trainer *t, const char *name)
{
    for (int i = 0; i < t->n_host; i++)
        if (!strcmp(t->host[i].key + PREFIX_LENGTH, name))
            return &t->host[i];
    return NULL;
}

static void drop(clt_trainer *t, clt_host_section *s)
{
    const int behind = t->n_host - 1 - (int)(s - t->host);
    CLT_FREE(s->key, s->text);
    memmove(s, s + 1, (size_t)behind * sizeof *s);
    t->n_host--;
}

static clt_status add(clt_trainer *t, const char *name, const char *text)
{
    const size_t room = PREFIX_LENGTH + strlen(name) + 1;
    clt_host_section s = {clt_alloc(room), clt_strdup(text)};
    clt_status status = s.key && s.text ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK) {
        memcpy(s.key, PREFIX, PREFIX_LENGTH);
        memcpy(s.key + PREFIX_LENGTH, name, room - PREFIX_LENGTH);
        status = CLT_PUSH(t->host, t->n_host, t->room_host, s);
    }
    if (status != CLT_OK)
        CLT_FREE(s.key, s.text);
    return status;
}

static bool is_utf8(const char *text)
{
    json_t *json = json_string(text);
    json_decref(json);
    return json != NULL;
}

clt_status clt_trainer_set_section(clt_trainer *t, const char *name, const char *text)
{
    if (!name || !*name || strlen(name) > MOST_NAME)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a section of a checkpoint needs a name of 1 to %d bytes", MOST_NAME);
    if (!is_utf8(name) || (text && !is_utf8(text)))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a section of a checkpoint is not UTF-8 in its %s: encode other bytes as "
                        "text, for example in base64",
                        is_utf8(name) ? "text" : "name");
    clt_host_section *s = find(t, name);
    char *copy = text && s ? clt_strdup(text) : NULL;
    if (text && s && !copy)
        return CLT_OUT_OF_MEMORY;
    if (copy) {
        clt_free(s->text);
        s->text = copy;
    } else if (s) {
        drop(t, s);
    } else if (text) {
        return add(t, name, text);
    }
    return CLT_OK;
}

clt_status clt_trainer_section(const clt_trainer *t, const char *name, const char **text)
{
    const clt_host_section *s = find(t, name ? name : "");
    const char **names = clt_calloc((size_t)t->n_host + 1, sizeof *names);
    CLT_TRY_MEMORY(names);
    for (int i = 0; i < t->n_host; i++)
        names[i] = t->host[i].key + PREFIX_LENGTH;
    const char *near = s || !name ? NULL : clt_nearest(name, names, t->n_host);
    clt_free(names);
    if (!s)
        return clt_fail(CLT_NOT_FOUND, "there is no section '%s'%s%s%s", name ? name : "",
                        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    *text = s->text;
    return CLT_OK;
}

const char *clt_trainer_section_name(const clt_trainer *t, int index)
{
    return index >= 0 && index < t->n_host ? t->host[index].key + PREFIX_LENGTH : NULL;
}

clt_status clt_host_sections_join(const clt_trainer *t, const clt_section *sections, int count,
                                  clt_section **all, int *n_all)
{
    *all = clt_calloc((size_t)(count + t->n_host) + 1, sizeof **all);
    CLT_TRY_MEMORY(*all);
    memcpy(*all, sections, (size_t)count * sizeof *sections);
    for (int i = 0; i < t->n_host; i++)
        (*all)[count + i] = (clt_section){t->host[i].key, t->host[i].text, 0};
    *n_all = count + t->n_host;
    return CLT_OK;
}

clt_status clt_host_sections_read(clt_trainer *t, const clt_checkpoint *checkpoint)
{
    const clt_section *s;
    clt_host_sections_free(t);
    for (int i = 0; (s = clt_checkpoint_section_at(checkpoint, i)); i++)
        if (!strncmp(s->name, PREFIX, PREFIX_LENGTH))
            CLT_TRY(add(t, s->name + PREFIX_LENGTH, s->text));
    return CLT_OK;
}

void clt_host_sections_free(clt_trainer *t)
{
    while (t->n_host)
        drop(t, &t->host[t->n_host - 1]);
    clt_free(t->host);
    t->host = NULL;
    t->room_host = 0;
}

clt_status clt_trainer_save_state(clt_trainer *t, const char *dir, int64_t keep)
{
    const clt_position none = {0, 0};
    return clt_trainer_save(t, dir, none, t->options.batch, (int64_t)t->options.seed, keep, NULL);
}

clt_status clt_trainer_restore_state(clt_trainer *t, const char *path)
{
    clt_position position;
    int64_t seed;
    return clt_trainer_restore(t, path, &position, &seed);
}
