#include "device/discover/sub_devices.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"

static const char busy_text[] = "kernel void busy(global float *out, int steps)\n"
                                "{\n"
                                "    float x = 1.0f + 1e-3f * (float)get_group_id(0);\n"
                                "    for (int i = 0; i < steps; i++)\n"
                                "        x = fma(x, 0.999f, 1e-3f);\n"
                                "    out[get_global_id(0)] = x;\n"
                                "}\n";

/* Processor time of one thread of this process. */
typedef struct thread_time {
    long id;
    int64_t nanoseconds;
} thread_time;

enum { MAX_THREADS = 1024, TRIES = 2, GROUPS_PER_CORE = 64, ROUNDS = 8 };

typedef struct probe {
    clt_device *part;
    cl_kernel kernel;
    cl_mem out;
    int groups, steps;
    thread_time before[MAX_THREADS], after[MAX_THREADS];
    int count_before, count_after;
    long busy[MAX_THREADS]; /* threads that compute for the host program */
    int busy_count;
} probe;

/* Reads the processor time of all threads; -1 if the system does not provide it. */
static int read_threads(thread_time *out)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (!folder)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder)) && count < MAX_THREADS;) {
        char path[300];
        long long spent = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        FILE *f = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (!f)
            continue;
        if (fscanf(f, "%lld", &spent) == 1)
            out[count++] = (thread_time){strtol(entry->d_name, NULL, 10), spent};
        fclose(f);
    }
    closedir(folder);
    return count ? count : -1;
}

static double spent_by(const probe *p, int i)
{
    for (int j = 0; j < p->count_before; j++) {
        if (p->before[j].id == p->after[i].id)
            return 1e-9 * (double)(p->after[i].nanoseconds - p->before[j].nanoseconds);
    }
    return 1e-9 * (double)p->after[i].nanoseconds;
}

static bool is_busy(const probe *p, long id)
{
    for (int i = 0; i < p->busy_count; i++) {
        if (p->busy[i] == id)
            return true;
    }
    return false;
}

/* Returns the number of threads that shared the work, (sum t)^2 / sum t^2. Unlike processor time
 * over wall time, it does not depend on the machine's other work. */
static double effective_threads(const probe *p, double *total)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < p->count_after; i++) {
        double spent = is_busy(p, p->after[i].id) ? 0 : spent_by(p, i);
        sum += spent;
        squares += spent * spent;
    }
    *total = sum;
    return squares > 0 ? sum * sum / squares : 0;
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs the kernel once. Measures the cores used and the processor time spent. */
static clt_status run_busy(probe *p, double *cores, double *spent)
{
    clt_device *part = p->part;
    const size_t global = (size_t)p->groups, local = 1;
    p->count_before = read_threads(p->before);
    double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
    CLT_CL(clSetKernelArg(p->kernel, 0, sizeof p->out, &p->out), "clSetKernelArg", part);
    CLT_CL(clSetKernelArg(p->kernel, 1, sizeof p->steps, &p->steps), "clSetKernelArg", part);
    CLT_CL(clEnqueueNDRangeKernel(part->queue, p->kernel, 1, NULL, &global, &local, 0, NULL, NULL),
           "clEnqueueNDRangeKernel", part);
    CLT_CL(clFinish(part->queue), "clFinish", part);
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = seconds(CLOCK_MONOTONIC) - wall;
    p->count_after = read_threads(p->after);
    if (p->count_before > 0 && p->count_after > 0) {
        *cores = effective_threads(p, spent);
    } else {
        *cores = cpu / wall;
        *spent = cpu;
    }
    return CLT_OK;
}

/* Finds threads of the process that compute while nothing runs on the part, such as threads that
 * decode data. `milliseconds` is the time to watch. A driver's threads may spin after their work,
 * so this waits first until they sleep. On a loaded machine a thread may wait longer for a core
 * than a short watch lasts. */
static void find_busy_threads(probe *p, int milliseconds)
{
    const struct timespec settle = {0, 40000000}, pause = {0, 1000000L * milliseconds};
    nanosleep(&settle, NULL);
    p->count_before = read_threads(p->before);
    nanosleep(&pause, NULL);
    p->count_after = read_threads(p->after);
    p->busy_count = 0;
    for (int i = 0; i < p->count_after; i++) {
        if (spent_by(p, i) > 1e-4 * milliseconds)
            p->busy[p->busy_count++] = p->after[i].id;
    }
}

/* Returns the most cores that any of several runs used. */
static clt_status run_tries(probe *p, double *cores)
{
    const double enough = 8e-3 * p->part->caps.compute_units;
    double most = 0;
    for (int tries = 0; tries < TRIES;) {
        double used = 0, spent = 0;
        CLT_TRY(run_busy(p, &used, &spent));
        if (spent < enough && p->steps < 1 << 28) {
            p->steps *= spent < enough / 8 ? 8 : 2;
            continue;
        }
        most = used > most ? used : most;
        tries++;
    }
    *cores = most;
    return CLT_OK;
}

/* Returns the limit between the part and the whole device, a little nearer to the part. */
static double most_allowed(int asked, int whole)
{
    return asked + 0.35 * (whole - asked);
}

/* Measures the cores that a part really uses. */
static clt_status measure_cores(clt_device *part, int whole, double *cores)
{
    probe *p = CLT_NEW(probe);
    CLT_TRY_MEMORY(p);
    p->part = part;
    p->groups = GROUPS_PER_CORE * whole;
    p->steps = 1;
    double used = 0, spent = 0;
    clt_status status = clt_device_buffer_create(part, p->groups * (int64_t)sizeof(float),
                                                 CL_MEM_READ_WRITE, "split probe", &p->out);
    CLT_NEXT(status,
             clt_device_kernel_from_text(part, "split probe", busy_text, NULL, "busy", &p->kernel));
    if (status == CLT_OK) /* the first run compiles */
        status = run_busy(p, &used, &spent);
    p->steps = 16384;
    CLT_NEXT(status, run_tries(p, &used));
    /* Measure several rounds, because refusing a part stops a run. A driver that does not keep its
     * parts fails each round. A round beside busy threads counts only if all rounds have them: the
     * driver's threads may not have got a core. */
    const double allowed = most_allowed(part->caps.compute_units, whole);
    bool sure = used <= allowed;
    for (int round = 0; status == CLT_OK && !sure && round < ROUNDS; round++) {
        find_busy_threads(p, 10 << (round < 3 ? round : 3));
        status = run_tries(p, &used);
        sure = used <= allowed && p->busy_count == 0;
    }
    clt_release_kernel(p->kernel);
    clt_release_buffer(p->out);
    clt_free(p);
    if (status == CLT_OK)
        *cores = used;
    return status;
}

typedef struct split_answer {
    cl_device_id root;
    double cores; /* cores that a part of `asked` cores used */
    int asked, whole;
} split_answer;

static pthread_mutex_t answers_lock = PTHREAD_MUTEX_INITIALIZER;
static split_answer answers[32];
static int answer_count;

clt_status clt_split_check(clt_device *part)
{
    split_answer answer = {.root = NULL};
    pthread_mutex_lock(&answers_lock);
    for (int i = 0; i < answer_count; i++) {
        if (answers[i].root == part->root)
            answer = answers[i];
    }
    pthread_mutex_unlock(&answers_lock);
    if (!answer.root) {
        answer.root = part->root;
        answer.asked = part->caps.compute_units;
        cl_uint whole = 0;
        CLT_CL(clGetDeviceInfo(part->root, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof whole, &whole, NULL),
               "clGetDeviceInfo", part);
        answer.whole = (int)whole;
        CLT_TRY(measure_cores(part, answer.whole, &answer.cores));
        clt_log(CLT_LOG_DEBUG, "%s: a part of %d core(s) used %.2f", part->label, answer.asked,
                answer.cores);
        pthread_mutex_lock(&answers_lock);
        if (answer_count < (int)(sizeof answers / sizeof answers[0]))
            answers[answer_count++] = answer;
        pthread_mutex_unlock(&answers_lock);
    }
    if (answer.cores > most_allowed(answer.asked, answer.whole))
        return clt_fail(
            CLT_UNSUPPORTED,
            "%s: its driver does not keep parts to their cores (a part of %d used %.1f); "
            "use the device whole, or restrict the process with taskset",
            part->label, answer.asked, answer.cores);
    return CLT_OK;
}
