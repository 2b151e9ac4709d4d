#include "device/program/program.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

enum { SUMMARY_LINES = 3, SUMMARY_LINE_BYTES = 300 };

static int add_lines(const char *log, const char *wanted, clt_str *out)
{
    int taken = 0;
    for (const char *line = log; *line && taken < SUMMARY_LINES;) {
        size_t length = strcspn(line, "\n");
        const char *next = line + length + (line[length] ? 1 : 0);
        while (length && (line[length - 1] == '\r' || line[length - 1] == ' '))
            length--;
        const char *hit = wanted ? strstr(line, wanted) : line;
        if (length && hit && hit < line + length) {
            int shown = length > SUMMARY_LINE_BYTES ? SUMMARY_LINE_BYTES : (int)length;
            clt_str_add(out, "%s%.*s", taken ? " | " : "", shown, line);
            taken++;
        }
        line = next;
    }
    return taken;
}

void clt_program_log_summary(const char *log, clt_str *out)
{
    if (!add_lines(log, "error:", out) && !add_lines(log, "error", out) &&
        !add_lines(log, NULL, out))
        clt_str_add(out, "the compiler gave no log");
}

/* Logs line by line, because a callback gets single lines. */
static void log_lines(const char *name, const clt_device *device, const char *text)
{
    enum { MOST_LINES = 200 };
    const clt_log_level level = device->probes ? CLT_LOG_DEBUG : CLT_LOG_ERROR;
    clt_log(level, "build log of %s on %s:", name, device->label);
    for (int i = 0; *text && i < MOST_LINES; i++) {
        const size_t length = strcspn(text, "\n");
        if (length)
            clt_log(level, "%.*s", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static clt_status build_failed(clt_device *device, const char *name, const char *options,
                               cl_program program, cl_int code)
{
    size_t bytes = 0;
    char *log = NULL;
    if (clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) ==
            CL_SUCCESS &&
        bytes > 1)
        log = clt_calloc(bytes + 1, 1);
    if (log)
        clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL);
    clt_str summary = {0};
    clt_program_log_summary(log ? log : "", &summary);
    log_lines(name, device, log ? log : "");
    clt_fail(CLT_BUILD, "kernel file %s does not build on %s (%s, options \"%s\"): %s", name,
             device->label, clt_cl_code_name(code), options, clt_str_text(&summary));
    clt_str_free(&summary);
    clt_free(log);
    return CLT_BUILD;
}

clt_status clt_program_build(clt_device *device, const char *name, const char *source,
                             const char *options, cl_program *out)
{
    cl_int code = CL_SUCCESS;
    cl_program program = clCreateProgramWithSource(device->context, 1, &source, NULL, &code);
    if (code != CL_SUCCESS)
        return clt_cl_fail(code, "clCreateProgramWithSource", device);
    clt_object_created(CLT_OBJECT_PROGRAM);
    code = clBuildProgram(program, 1, &device->id, options, NULL, NULL);
    clt_status status = CLT_OK;
    if (code != CL_SUCCESS)
        status = build_failed(device, name, options, program, code);
    if (status != CLT_OK) {
        clReleaseProgram(program);
        clt_object_released(CLT_OBJECT_PROGRAM);
        return status;
    }
    *out = program;
    return CLT_OK;
}
