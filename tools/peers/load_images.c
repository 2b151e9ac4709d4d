/*
 * What a loader of JPEGs costs without a runtime around it: libjpeg-turbo and a plain resize in C.
 *
 *     load_images make FOLDER COUNT WIDTH HEIGHT 420|444 SEED
 *     load_images read FOLDER THREADS PASSES [DUMP]
 *
 * `make` writes COUNT photograph-like JPEGs of quality 90 into FOLDER/train/{a,b}. `read` decodes
 * each file PASSES times, resizes the shorter side to 256 and keeps the middle 224 x 224, as planes
 * of floats from 0 to 1. It prints the images a second. DUMP gets the bytes of the first file.
 * The program shares no code with cltrain. Build: cc -O3 -march=native load_images.c -lturbojpeg
 * -lpthread -lm
 */
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <turbojpeg.h>

enum { RESIZE = 256, SIZE = 224, MOST_FILES = 100000, MOST_TAPS = 64, SLOTS = 192 };

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "load_images: %s: %s\n", what, why);
    exit(1);
}

static void *need(void *memory)
{
    if (!memory)
        fail("memory", "is exhausted");
    return memory;
}

/* --- make ------------------------------------------------------------------------------------- */

static uint64_t random_state;

static double uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

/* Paints waves of several lengths, discs with sharp edges, and noise as of a camera's sensor. */
static void paint(unsigned char *rgb, int width, int height)
{
    enum { WAVES = 8, DISCS = 20 };
    double wave[WAVES][6], disc[DISCS][6];
    for (int w = 0; w < WAVES; w++)
        for (int i = 0; i < 6; i++)
            wave[w][i] = uniform();
    for (int d = 0; d < DISCS; d++)
        for (int i = 0; i < 6; i++)
            disc[d][i] = uniform();
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            double colour[3] = {110, 120, 115};
            const double u = (double)x / width, v = (double)y / height;
            for (int w = 0; w < WAVES; w++) {
                const double turns = 6.283 * (1 << w / 2);
                const double h =
                    40 / (1 + w) * sin(turns * (u * wave[w][0] + v * wave[w][1]) + 6 * wave[w][2]);
                for (int c = 0; c < 3; c++)
                    colour[c] += h * wave[w][3 + c];
            }
            for (int d = 0; d < DISCS; d++) {
                const double dx = u - disc[d][0], dy = v - disc[d][1], r = 0.02 + 0.1 * disc[d][2];
                if (dx * dx + dy * dy < r * r)
                    for (int c = 0; c < 3; c++)
                        colour[c] = 0.5 * colour[c] + 120 * disc[d][3 + c];
            }
            const double noise = 12 * (uniform() + uniform() - 1);
            for (int c = 0; c < 3; c++) {
                const double value = colour[c] + noise + 4 * (uniform() - 0.5);
                rgb[(y * width + x) * 3 + c] = (unsigned char)(value < 0     ? 0
                                                               : value > 255 ? 255
                                                                             : value);
            }
        }
}

static void make(char **argv)
{
    const int count = atoi(argv[3]), width = atoi(argv[4]), height = atoi(argv[5]);
    const int subsampling = !strcmp(argv[6], "444") ? TJSAMP_444 : TJSAMP_420;
    unsigned char *rgb = need(malloc((size_t)width * (size_t)height * 3)), *jpeg = NULL;
    unsigned long bytes = 0;
    double total = 0;
    tjhandle handle = need(tjInitCompress());
    random_state = strtoull(argv[7], NULL, 10);
    for (int i = 0; i < count; i++) {
        static const char *const parts[] = {"", "/train", "/train/a", "/train/b"};
        char name[4096];
        for (int p = 0; !i && p < 4; p++) {
            snprintf(name, sizeof name, "%s%s", argv[2], parts[p]);
            mkdir(name, 0777);
        }
        snprintf(name, sizeof name, "%s/train/%c/%05d.jpg", argv[2], i % 2 ? 'b' : 'a', i);
        paint(rgb, width, height);
        if (tjCompress2(handle, rgb, width, 0, height, TJPF_RGB, &jpeg, &bytes, subsampling, 90, 0))
            fail(name, tjGetErrorStr2(handle));
        FILE *file = fopen(name, "wb");
        if (!file || fwrite(jpeg, 1, bytes, file) != bytes || fclose(file))
            fail(name, "cannot be written");
        total += (double)bytes;
    }
    printf("%d JPEGs of %d x %d, %.0f KB each\n", count, width, height, total / count / 1000);
    tjFree(jpeg);
    tjDestroy(handle);
    free(rgb);
}

/* --- read ------------------------------------------------------------------------------------- */

/* For each output of an axis: where its inputs begin, how many they are, and their weights. */
typedef struct axis {
    int begin[SIZE], count[SIZE];
    float weight[SIZE][MOST_TAPS];
} axis;

/* The weights of outputs [first, first + SIZE) of `to` that `from` inputs are resized to: a
 * triangle as wide as the scale. */
static void weigh(axis *a, double from, int to, int first, int limit)
{
    const double scale = from / to, width = scale > 1 ? scale : 1;
    for (int i = 0; i < SIZE; i++) {
        const double centre = (first + i + 0.5) * scale;
        int begin = (int)floor(centre - width + 0.5), end = (int)floor(centre + width + 0.5);
        double sum = 0;
        begin = begin < 0 ? 0 : begin;
        end = end > limit ? limit : end;
        a->begin[i] = begin;
        a->count[i] = end - begin;
        for (int k = 0; k < end - begin; k++) {
            const double far = fabs(begin + k - centre + 0.5) / width;
            a->weight[i][k] = (float)(far < 1 ? 1 - far : 0);
            sum += a->weight[i][k];
        }
        for (int k = 0; k < end - begin; k++)
            a->weight[i][k] /= (float)sum;
    }
}

typedef struct scratch {
    tjhandle jpeg;
    unsigned char *file, *rgb;
    size_t file_room, rgb_room;
    float *row; /* a row after the sum over rows */
    size_t row_room;
    axis across, down;
} scratch;

static void *room(void *memory, size_t *have, size_t bytes)
{
    if (bytes <= *have)
        return memory;
    free(memory);
    *have = bytes;
    return need(malloc(bytes));
}

static void read_image(scratch *s, const char *name, float *out)
{
    struct stat info;
    int width, height, sampling, colours, shrink = 8;
    FILE *file = fopen(name, "rb");
    if (!file || fstat(fileno(file), &info))
        fail(name, "cannot be read");
    const size_t bytes = (size_t)info.st_size;
    s->file = room(s->file, &s->file_room, bytes);
    setvbuf(file, NULL, _IONBF, 0);
    if (fread(s->file, 1, bytes, file) != bytes)
        fail(name, "cannot be read");
    fclose(file);
    if (tjDecompressHeader3(s->jpeg, s->file, bytes, &width, &height, &sampling, &colours))
        fail(name, tjGetErrorStr2(s->jpeg));
    const int shorter = width < height ? width : height;
    const int to_width = width * RESIZE / shorter, to_height = height * RESIZE / shorter;
    /* Decode at 1/2, 1/4 or 1/8 where twice the final size is left, as cltrain does. */
    while (shrink > 1 && (width < 2 * shrink * to_width || height < 2 * shrink * to_height))
        shrink /= 2;
    const tjscalingfactor factor = {1, shrink};
    const int w = TJSCALED(width, factor), h = TJSCALED(height, factor);
    s->rgb = room(s->rgb, &s->rgb_room, (size_t)w * (size_t)h * 3);
    s->row = room(s->row, &s->row_room, (size_t)w * 3 * sizeof *s->row);
    if (tjDecompress2(s->jpeg, s->file, bytes, s->rgb, w, 0, h, TJPF_RGB, 0))
        fail(name, tjGetErrorStr2(s->jpeg));
    weigh(&s->across, (double)width / shrink, to_width, (to_width - SIZE) / 2, w);
    weigh(&s->down, (double)height / shrink, to_height, (to_height - SIZE) / 2, h);
    const int left = s->across.begin[0] * 3;
    const int right = (s->across.begin[SIZE - 1] + s->across.count[SIZE - 1]) * 3;
    for (int y = 0; y < SIZE; y++) {
        float *restrict row = s->row;
        for (int x = left; x < right; x++)
            row[x] = 0;
        for (int k = 0; k < s->down.count[y]; k++) {
            const unsigned char *restrict from =
                s->rgb + (size_t)(s->down.begin[y] + k) * (size_t)w * 3;
            const float weight = s->down.weight[y][k] * (1.0f / 255);
            for (int x = left; x < right; x++)
                row[x] += weight * from[x];
        }
        for (int x = 0; x < SIZE; x++) {
            const float *from = row + s->across.begin[x] * 3, *weight = s->across.weight[x];
            float r = 0, g = 0, b = 0;
            for (int k = 0; k < s->across.count[x]; k++) {
                r += weight[k] * from[3 * k];
                g += weight[k] * from[3 * k + 1];
                b += weight[k] * from[3 * k + 2];
            }
            out[y * SIZE + x] = r;
            out[(SIZE + y) * SIZE + x] = g;
            out[(2 * SIZE + y) * SIZE + x] = b;
        }
    }
}

static char *files[MOST_FILES];
static int n_files, passes;
static atomic_int next;
static float *batch; /* the last SLOTS images */

static void *work(void *unused)
{
    scratch *s = need(calloc(1, sizeof *s));
    s->jpeg = need(tjInitDecompress());
    for (int i; (i = atomic_fetch_add(&next, 1)) < passes * n_files;)
        read_image(s, files[i % n_files], batch + (size_t)(i % SLOTS) * 3 * SIZE * SIZE);
    tjDestroy(s->jpeg);
    free(s->file);
    free(s->rgb);
    free(s->row);
    free(s);
    return unused;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void find(const char *folder)
{
    DIR *list = opendir(folder);
    if (!list)
        fail(folder, "cannot be opened");
    for (struct dirent *entry; n_files < MOST_FILES && (entry = readdir(list));) {
        const size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".jpg"))
            continue;
        char *name = need(malloc(strlen(folder) + length + 2));
        sprintf(name, "%s/%s", folder, entry->d_name);
        files[n_files++] = name;
    }
    closedir(list);
}

static void dump(const char *name)
{
    FILE *file = fopen(name, "wb");
    if (!file)
        fail(name, "cannot be written");
    for (int i = 0; i < 3 * SIZE * SIZE; i++)
        putc((int)(batch[i] * 255 + 0.5f), file);
    fclose(file);
}

static void read_all(int argc, char **argv)
{
    enum { MOST_THREADS = 256 };
    pthread_t threads[MOST_THREADS];
    char name[4096];
    for (int part = 0; part < 2; part++) {
        snprintf(name, sizeof name, "%s/train/%c", argv[2], "ab"[part]);
        find(name);
    }
    qsort(files, (size_t)n_files, sizeof *files, by_name);
    int count = atoi(argv[3]);
    passes = atoi(argv[4]);
    batch = need(calloc((size_t)SLOTS * 3 * SIZE * SIZE, sizeof *batch));
    memset(batch, 1, (size_t)SLOTS * 3 * SIZE * SIZE * sizeof *batch);
    if (count < 1 || count > MOST_THREADS || !n_files || passes < 1)
        fail("read", "needs files, threads and passes");
    const double began = now();
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            fail("thread", "cannot be started");
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%.1f\n", (double)(passes * n_files) / (now() - began));
    if (argc > 5) {
        passes = n_files = 1;
        next = 0;
        work(NULL);
        dump(argv[5]);
    }
}

int main(int argc, char **argv)
{
    if (argc == 8 && !strcmp(argv[1], "make"))
        make(argv);
    else if ((argc == 5 || argc == 6) && !strcmp(argv[1], "read"))
        read_all(argc, argv);
    else
        fail("usage",
             "make FOLDER COUNT WIDTH HEIGHT 420|444 SEED, or read FOLDER THREADS PASSES [DUMP]");
    return 0;
}
