/*
 * Saves checkpoints. All files are written to a temporary folder and synced, and only then is the
 * folder renamed. The process may be killed at any moment without loss of an earlier checkpoint.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state.h"

void clt_checkpoint_desc_init(clt_checkpoint_desc *desc)
{
    *desc = (clt_checkpoint_desc){.struct_size = (int64_t)sizeof *desc};
}

static clt_status check_desc(const clt_checkpoint_desc *desc)
{
    CLT_TRY(CLT_CHECK_STRUCT(desc, clt_checkpoint_desc));
    const clt_run_state *run = &desc->run;
    if (run->step < 0 || run->epoch < 0 || run->batch < 0 || run->sample < 0 || desc->keep < 0 ||
        desc->best < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "step %lld, epoch %lld, batch %lld, sample %lld, keep %lld and best %lld "
                        "must not be negative",
                        (long long)run->step, (long long)run->epoch, (long long)run->batch,
                        (long long)run->sample, (long long)desc->keep, (long long)desc->best);
    if (run->step > 999999999999999999)
        return clt_fail(CLT_INVALID_ARGUMENT, "step %lld has more than 18 digits",
                        (long long)run->step);
    return CLT_OK;
}

static clt_status write_part(int folder_fd, const clt_checkpoint_desc *desc, int index,
                             clt_part *out)
{
    static const char *const format[] = {"format", "pt"};
    clt_tensors_desc tensors;
    clt_tensors_desc_init(&tensors);
    const struct {
        const clt_tensor *tensors;
        int64_t count;
    } parts[CLT_PARTS] = {{desc->model, desc->model_count},
                          {desc->optimizer, desc->optimizer_count},
                          {desc->average, desc->average_count}};
    out->there = index < CLT_PART_AVERAGE || parts[index].count;
    if (!out->there)
        return CLT_OK;
    tensors.tensors = parts[index].tensors;
    tensors.count = parts[index].count;
    tensors.metadata = format;
    tensors.metadata_pairs = 1;
    tensors.fetch = desc->fetch;
    tensors.fetch_user = desc->fetch_user;
    clt_outfile *file;
    CLT_TRY(clt_outfile_create(folder_fd, clt_part_files[index], &file));
    clt_status status = clt_tensors_write(file, &tensors);
    if (status != CLT_OK) {
        clt_outfile_abandon(file);
        return clt_fail_prefix(status, "%s: ", clt_part_files[index]);
    }
    return clt_outfile_finish(file, &out->bytes, &out->hash);
}

static clt_status write_state(int folder_fd, const clt_checkpoint_desc *desc, const clt_part *parts)
{
    char *text;
    CLT_TRY(clt_state_encode(desc, parts, &text));
    clt_outfile *file;
    clt_status status = clt_outfile_create(folder_fd, CLT_STATE_FILE, &file);
    if (status == CLT_OK) {
        status = clt_outfile_write(file, text, (int64_t)strlen(text));
        CLT_NEXT(status, clt_outfile_write(file, "\n", 1));
        if (status == CLT_OK)
            status = clt_outfile_finish(file, NULL, NULL);
        else
            clt_outfile_abandon(file);
    }
    free(text);
    return status;
}

static clt_status write_all(int dir_fd, const char *tmp, const clt_checkpoint_desc *desc)
{
    if (mkdirat(dir_fd, tmp, 0777) != 0)
        return clt_fail(CLT_IO, "cannot make the folder %s: %s", tmp, strerror(errno));
    int fd = openat(dir_fd, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return clt_fail(CLT_IO, "cannot open the folder %s: %s", tmp, strerror(errno));
    clt_part parts[CLT_PARTS] = {{0}};
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < CLT_PARTS; i++)
        status = write_part(fd, desc, i, &parts[i]);
    CLT_NEXT(status, write_state(fd, desc, parts));
    CLT_NEXT(status, clt_sync_fd(fd, tmp));
    close(fd);
    return status;
}

/* Gives the finished folder its name. A folder that had the name gets a name that is removed
 * later. */
static clt_status put_in_place(int dir_fd, const char *tmp, const char *name)
{
    if (renameat(dir_fd, tmp, dir_fd, name) == 0)
        return CLT_OK;
    if (errno == EEXIST || errno == ENOTEMPTY) {
        if (renameat2(dir_fd, tmp, dir_fd, name, RENAME_EXCHANGE) == 0)
            return CLT_OK;
        /* On file systems without an exchange, the old checkpoint can be found between the two
         * renames. */
        char old[64];
        snprintf(old, sizeof old, CLT_OLD_PREFIX "%s", name);
        if (clt_folder_remove(dir_fd, old) && renameat(dir_fd, name, dir_fd, old) == 0) {
            if (renameat(dir_fd, tmp, dir_fd, name) == 0)
                return CLT_OK;
            int error = errno;
            renameat(dir_fd, old, dir_fd, name);
            errno = error;
        }
    }
    return clt_fail(CLT_IO, "cannot rename %s to %s: %s", tmp, name, strerror(errno));
}

/* Renames a checkpoint before deleting it, because the process may be killed meanwhile. Nobody
 * takes the new name for a checkpoint. */
static bool delete_step(int dir_fd, const char *name)
{
    char doomed[64];
    snprintf(doomed, sizeof doomed, CLT_TMP_PREFIX "delete-%s", name);
    return renameat(dir_fd, name, dir_fd, doomed) == 0 && clt_folder_remove(dir_fd, doomed);
}

/* Points the link to the best checkpoint, at once. A file system without links gives a warning. */
static void link_best(const char *dir, int dir_fd, int64_t best)
{
    const char *name = clt_step_name_of(best).text, *made = CLT_TMP_PREFIX CLT_BEST_LINK;
    if (faccessat(dir_fd, name, F_OK, 0) != 0)
        clt_log(CLT_LOG_WARN, "the best checkpoint, %s/%s, is not there: %s", dir, name,
                strerror(errno));
    else if (symlinkat(name, dir_fd, made) != 0 ||
             renameat(dir_fd, made, dir_fd, CLT_BEST_LINK) != 0)
        clt_log(CLT_LOG_WARN,
                "cannot make the link %s/" CLT_BEST_LINK " to the best checkpoint, "
                "%s: %s",
                dir, name, strerror(errno));
}

/* Returns the step to which the link points; -1: there is none. */
static int64_t linked_best(int dir_fd)
{
    char target[64];
    clt_step_name name;
    const ssize_t length = readlinkat(dir_fd, CLT_BEST_LINK, target, sizeof target - 1);
    if (length < 0)
        return -1;
    target[length] = '\0';
    return clt_step_name_parse(target, &name) ? name.step : -1;
}

static void delete_older(const char *dir, int dir_fd, const clt_checkpoint_desc *desc)
{
    clt_step_name *items;
    int count;
    if (clt_folder_list(dir, &items, &count) != CLT_OK) {
        clt_log(CLT_LOG_WARN, "older checkpoints are not deleted: %s", clt_error_message());
        return;
    }
    int64_t kept = 1;
    const int64_t linked = linked_best(dir_fd), best = desc->best > 0 ? desc->best : linked;
    for (int i = 0; i < count; i++) {
        bool displaced = items[i].displaced && items[i].step <= desc->run.step;
        if (!displaced && items[i].step >= desc->run.step)
            continue;
        if (!displaced && (desc->keep == 0 || kept < desc->keep)) {
            kept++;
            continue;
        }
        if (!displaced && (items[i].step == best || items[i].step == linked))
            continue;
        if (!delete_step(dir_fd, items[i].text))
            clt_log(CLT_LOG_WARN, "cannot delete the checkpoint %s/%s: %s", dir, items[i].text,
                    strerror(errno));
    }
    clt_free(items);
}

static clt_status save_into(const char *dir, const clt_checkpoint_desc *desc)
{
    clt_step_name name = clt_step_name_of(desc->run.step);
    char tmp[64];
    snprintf(tmp, sizeof tmp, CLT_TMP_PREFIX "%s", name.text);
    CLT_TRY(clt_folder_make(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return clt_fail(CLT_IO, "cannot open the folder: %s", strerror(errno));
    if (!clt_folder_clean(fd, CLT_TMP_PREFIX))
        clt_log(CLT_LOG_WARN, "cannot remove all leftovers %s/" CLT_TMP_PREFIX "*", dir);
    clt_status status = write_all(fd, tmp, desc);
    CLT_NEXT(status, put_in_place(fd, tmp, name.text));
    if (status == CLT_OK) {
        status = clt_sync_fd(fd, dir);
        if (status == CLT_OK) {
            if (desc->best > 0)
                link_best(dir, fd, desc->best);
            delete_older(dir, fd, desc);
            /* The older checkpoint of the same step, if the two were exchanged. */
            clt_folder_remove(fd, tmp);
        }
    } else {
        clt_folder_remove(fd, tmp);
    }
    close(fd);
    return status;
}

clt_status clt_checkpoint_save(const char *dir, const clt_checkpoint_desc *desc)
{
    CLT_TRY(clt_path_given(dir, "a checkpoint"));
    clt_status status = check_desc(desc);
    CLT_NEXT(status, save_into(dir, desc));
    if (status == CLT_OK)
        return CLT_OK;
    return clt_fail(status, "checkpoint %s/%s was not saved: %s (earlier ones are untouched)", dir,
                    clt_step_name_of(desc->run.step).text, clt_error_message());
}
