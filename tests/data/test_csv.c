/* csv:PATH: features, labels and numbers against values computed here; descriptions that are given
 * back; messages, which name line and column. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>
#include <zlib.h>

#include <cltrain/data.h>

#ifdef CLT_HAVE_CSV

static char folder[] = "/tmp/clt-csv-XXXXXX", path[128], spec[512];

static int make_folder(void **state)
{
    (void)state;
    return !mkdtemp(folder);
}

static int remove_folder(void **state)
{
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* Writes a file and makes the SPEC for it with options. */
static const char *file(const char *name, const char *text, const char *options)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
    snprintf(spec, sizeof spec, "csv:%s%s%s", path, *options ? "?" : "", options);
    return spec;
}

static clt_dataset *open_as(const char *from, const char *split, const char *description)
{
    clt_dataset_options o;
    clt_dataset *d = NULL;
    clt_dataset_options_init(&o);
    o.split = split;
    o.description = description;
    if (clt_dataset_open(from, &o, &d) != CLT_OK)
        fail_msg("%s: %s", from, clt_error_message());
    return d;
}

static const void *field(clt_dataset *d, const char *name)
{
    int number;
    const void *data;
    if (clt_dataset_find_field(d, name, &number) != CLT_OK)
        return NULL;
    assert_int_equal(clt_dataset_field_data(d, number, &data), CLT_OK);
    return data;
}

static void fails(const char *from, const char *part)
{
    clt_dataset *d = NULL;
    if (clt_dataset_open(from, NULL, &d) == CLT_OK)
        fail_msg("%s was opened", from);
    if (!strstr(clt_error_message(), part))
        fail_msg("'%s' is not in: %s", part, clt_error_message());
}

static void near(double value, double expected)
{
    if (fabs(value - expected) > 1e-6 * fmax(1, fabs(expected)))
        fail_msg("%.9g instead of %.9g", value, expected);
}

/* Two numbers, a category with quotes, and a number to predict. Rows 0 to 8 are for training, row 9
 * for tests. */
static const char table[] = "age,city,price\r\n"
                            "10,Rome,1\r\n"
                            "20,\"Oslo, N\",3\r\n"
                            "30,Rome,5\r\n"
                            ",Rome,1\r\n"
                            "\r\n"
                            "50,\"a \"\"b\"\"\",2\r\n"
                            "60,Rome,2\r\n"
                            "10,NA,3\r\n"
                            "10,Rome,3\r\n"
                            "20,\"Oslo, N\",7\r\n"
                            "40,Bern,4\r\n";

static void test_numbers(void **state)
{
    (void)state;
    const double ages[] = {10, 20, 30, 26.25, 50, 60, 10, 10, 20};
    const double prices[] = {1, 3, 5, 1, 2, 2, 3, 3, 7};
    const int cities[] = {1, 0, 1, 1, 2, 1, 1, 1, 0}; /* Oslo, Rome, a "b": in byte order */
    double age = 0, spread = 0, mean = 27. / 9, squares = 0;
    for (int i = 0; i < 9; i++) {
        age += i == 3 ? 0 : ages[i] / 8;
        squares += (prices[i] - mean) * (prices[i] - mean) / 9;
    }
    for (int i = 0; i < 9; i++)
        spread += i == 3 ? 0 : (ages[i] - age) * (ages[i] - age) / 8;
    near(age, 26.25);
    clt_dataset *d = open_as(file("t.csv", table, "missing=mean"), "train", NULL);
    const float *x = field(d, "x"), *y = field(d, "y");
    assert_int_equal(clt_dataset_count(d), 9);
    for (int i = 0; i < 9; i++) {
        near(x[4 * i], (ages[i] - age) / sqrt(spread));
        for (int c = 0; c < 3; c++)
            near(x[4 * i + 1 + c], c == cities[i]);
        near(y[i], (prices[i] - mean) / sqrt(squares));
    }
    /* The test row by itself, and with the description of the training rows. */
    clt_dataset *test = open_as(spec, "test", NULL);
    const float *own = field(test, "x");
    assert_int_equal(clt_dataset_count(test), 1);
    near(own[0], (40 - age) / sqrt(spread));
    near(own[1] + own[2] + own[3], 0); /* Bern is unknown */
    char other[512];
    snprintf(other, sizeof other, "%s", file("o.csv", "city,age\nRome,40\n\"Oslo, N\",\n", ""));
    clt_dataset *all = open_as(other, "all", clt_dataset_description(d));
    const float *given = field(all, "x");
    assert_null(field(all, "y"));
    near(given[0], own[0]);
    near(given[4], 0);
    near(given[2] + given[5], 2);
    clt_dataset_free(all);
    clt_dataset_free(test);
    clt_dataset_free(d);
}

/* Compares the first feature of a part's samples with their numbers in the file. */
static void expect_scaled(clt_dataset *whole, const clt_dataset *part, const double *raw,
                          double mean, double std)
{
    const float *x = field(whole, "x");
    for (int64_t i = 0; i < clt_dataset_count(part); i++) {
        const int64_t k = clt_dataset_number(part, i);
        near(x[2 * k], (raw[k] - mean) / std);
    }
}

/* Means, deviations and fills are those of the samples that are left for training. */
static void test_validation(void **state)
{
    (void)state;
    static const char rows[] = "n,c,mark,y\n"
                               "1,a,1,5\n2,b,0,7\n4,b,0,9\n8,,0,1\n,a,1,2\n"
                               "32,a,1,4\n64,b,0,4\n128,a,1,3\n256,a,0,0\n0,a,0,8\n";
    const double n[] = {1, 2, 4, 8, NAN, 32, 64, 128, 256}, y[] = {5, 7, 9, 1, 2, 4, 4, 3, 0};
    for (int by_field = 0; by_field < 2; by_field++) {
        clt_dataset *rest, *part, *again;
        clt_dataset *d =
            open_as(file("v.csv", rows, "missing=mean,field=mark,categories=index,target=y"),
                    "train", NULL);
        const float *x = field(d, "x");
        const float *mark = field(d, "mark");
        assert_true(mark[0] == 1 && mark[1] == 0);
        near(x[2 * 3 + 1], 0); /* a is more frequent in all samples */
        assert_int_equal(by_field ? clt_dataset_split_by(d, "mark", &rest, &part)
                                  : clt_dataset_split(d, 0.4, 3, &rest, &part),
                         CLT_OK);
        double sum = 0, squares = 0, count = 0, target = 0, spread = 0, frequent[2] = {0};
        const char *names = "abb.aabaa";
        for (int64_t i = 0; i < clt_dataset_count(rest); i++) {
            const int64_t k = clt_dataset_number(rest, i);
            assert_true(!by_field || mark[k] == 0);
            target += y[k] / (double)clt_dataset_count(rest);
            sum += isnan(n[k]) ? 0 : n[k];
            count += !isnan(n[k]);
            frequent[names[k] == 'b'] += names[k] != '.';
        }
        assert_int_equal(clt_dataset_count(rest) + clt_dataset_count(part), 9);
        for (int64_t i = 0; i < clt_dataset_count(rest); i++) {
            const int64_t k = clt_dataset_number(rest, i);
            squares += isnan(n[k]) ? 0 : pow(n[k] - sum / count, 2) / count;
            spread += pow(y[k] - target, 2) / (double)clt_dataset_count(rest);
        }
        double filled[9];
        for (int i = 0; i < 9; i++)
            filled[i] = isnan(n[i]) ? sum / count : n[i];
        expect_scaled(d, rest, filled, sum / count, sqrt(squares));
        expect_scaled(d, part, filled, sum / count, sqrt(squares));
        const float *targets = field(d, "y");
        for (int i = 0; i < 9; i++)
            near(targets[i], (y[i] - target) / sqrt(spread));
        near(x[2 * 3 + 1], frequent[1] > frequent[0]);
        /* Tests are normalised as training is. */
        clt_dataset *test = open_as(spec, "test", clt_dataset_description(rest));
        const float *own = field(test, "x");
        near(own[0], (0 - sum / count) / sqrt(squares));
        /* A second division would change what the first parts have. */
        assert_int_equal(clt_dataset_split(d, 0.5, 1, &again, &again), CLT_STATE);
        assert_non_null(strstr(clt_error_message(), "its means would change: open it again"));
        clt_dataset_free(test);
        clt_dataset_free(rest);
        clt_dataset_free(part);
        clt_dataset_free(d);
    }
    /* A file that another program has changed meanwhile. */
    clt_dataset *rest, *part,
        *d = open_as(file("v.csv", rows, "field=mark,missing=mean"), "train", NULL);
    file("v.csv", "n,c,mark,y\n1,a,1,5\n2,b,0,7\n", "");
    assert_int_equal(clt_dataset_split(d, 0.4, 3, &rest, &part), CLT_FORMAT);
    assert_non_null(strstr(clt_error_message(), "another program has changed it"));
    clt_dataset_free(d);
    fails(file("v.csv", rows, "field=c,missing=mean"),
          "line 5, column 2 ('c'): the value is missing");
}

static void test_labels(void **state)
{
    (void)state;
    int number;
    const char *text = "1;b;10\n2;a;9\n3;b;10\n4;a;-1\n";
    clt_dataset *d =
        open_as(file("n.csv", text, "delimiter=;,header=off,task=classify,categories=index"),
                "train", NULL);
    const int32_t *labels = field(d, "label");
    const float *x = field(d, "x");
    assert_int_equal(clt_dataset_count(d), 3);
    assert_int_equal(clt_dataset_find_field(d, "label", &number), CLT_OK);
    assert_int_equal(clt_dataset_classes(d, number), 2);            /* -1 is in the test row */
    assert_string_equal(clt_dataset_class_name(d, number, 0), "9"); /* by number, not by text */
    assert_true(labels[0] == 1 && labels[1] == 0 && labels[2] == 1);
    near(x[0], -sqrt(1.5));
    near(x[1] + x[3] + x[5], 2);
    clt_dataset_free(d);
    fails(file("n.csv", text, "delimiter=;,header=off,task=classify,text=7"), "no column '7'");
    clt_dataset_options o;
    clt_dataset_options_init(&o);
    o.split = "test";
    assert_int_equal(
        clt_dataset_open(file("n.csv", text, "delimiter=;,header=off,task=classify"), &o, &d),
        CLT_FORMAT);
    assert_non_null(strstr(clt_error_message(), "line 4, column 3 ('3'): the training samples have "
                                                "no label '-1'"));
}

/* The features of the rows are those of the same rows in another file. */
static void same_features(const char *from, const char *description, const float *x, int64_t count)
{
    clt_dataset *d = open_as(from, "all", description);
    const float *own = field(d, "x");
    assert_int_equal(clt_dataset_count(d), 2);
    assert_memory_equal(own, x, (size_t)count * sizeof *own);
    clt_dataset_free(d);
}

/* Beside a description, delimiter= and header= are about the file, and other options must agree. */
static void test_options_beside_description(void **state)
{
    (void)state;
    static const char rows[] = "age,city,w,y\n1,b,1,2\n2,a,1,3\n3,b,1,4\n,a,1,5\n3,b,1,4\n";
    clt_dataset *d = open_as(file("d.csv", rows, "missing=mean,field=w"), "train", NULL);
    const char *how = clt_dataset_description(d);
    const float *x = field(d, "x");
    same_features(file("e.csv", "age,city\n1,b\n2,a\n", "missing=mean,target=y,drop=note"), how, x,
                  6);
    same_features(file("e.csv", "city;age\nb;1\na;2\n", "delimiter=;"), how, x, 6);
    same_features(file("e.csv", "1\tb\t1\t0\n2\ta\t1\t0\n", "delimiter=tab,header=off"), how, x, 6);
    static const struct {
        const char *text, *options, *says;
    } cases[] = {
        {"age;city\n1;b\n", "", "has one column only, 'age;city'; did you mean delimiter=;?"},
        {"1,b,7,0\n2,a,1,0\n", "",
         "has no column 'age', which the training samples had; if the line has "
         "values say header=off"},
        {"1,b,1,1\n2,a,1,0\n", "",
         "the name '1' is that of column 1 too: rename one, or say header=off"},
        {"", "target=city", "option target=city: the model was trained to predict 'y'"},
        {"", "task=classify", "option task=classify: the target 'y' is the target, a number, in"},
        {"", "drop=age", "option drop=age: this column is a number in the training of the model"},
        {"", "text=age", "option text=age: this column is a number in the training of the model"},
        {"", "field=age", "option field=age: this column is a number in the training"},
        {"", "field=v", "option field=v: this column did not exist in the training"},
        {"", "categories=index", "categories=index: the model was trained with categories=onehot"},
        {"", "missing=frequent", "missing=frequent: the model was trained with missing=mean"},
    };
    clt_dataset_options o;
    clt_dataset_options_init(&o);
    o.split = "all";
    o.description = how;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clt_dataset *none = NULL;
        const char *text = *cases[i].text ? cases[i].text : rows;
        assert_int_not_equal(clt_dataset_open(file("e.csv", text, cases[i].options), &o, &none),
                             CLT_OK);
        if (!strstr(clt_error_message(), cases[i].says))
            fail_msg("'%s' is not in: %s", cases[i].says, clt_error_message());
    }
    clt_dataset_free(d);
    /* Without fills, and with semicolons and no header in training. */
    d = open_as(file("d.csv", "1;b;2\n2;a;3\n3;b;4\n", "delimiter=;,header=off"), "train", NULL);
    o.description = clt_dataset_description(d);
    same_features(file("e.csv", "age,city\n1,b\n2,a\n", "delimiter=%2C,header=on"), o.description,
                  field(d, "x"), 6);
    clt_dataset *none = NULL;
    file("e.csv", "1,b\n2,a\n", "");
    assert_int_equal(clt_dataset_open(spec, &o, &none), CLT_FORMAT);
    assert_non_null(strstr(clt_error_message(), "line 1: has 1 columns, the training samples 3; "
                                                "did you mean delimiter=%2C (commas)?"));
    assert_int_equal(clt_dataset_open(file("e.csv", "1;b\n;a\n", "missing=mean"), &o, &none),
                     CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "the model was trained without it and knows no "
                                                "value to fill in"));
    clt_dataset_free(d);
}

static void test_gzip_and_folders(void **state)
{
    (void)state;
    char name[160];
    snprintf(name, sizeof name, "%s/train.csv.gz", folder);
    gzFile gz = gzopen(name, "wb");
    assert_non_null(gz);
    for (int i = 0; i < 50000; i++)
        gzprintf(gz, i ? "%d,%s\n" : "number,kind\n", i, i % 2 ? "odd" : "even");
    assert_int_equal(gzclose(gz), Z_OK);
    file("test.csv", "number,kind\n7,odd\n8,even\n", "");
    snprintf(spec, sizeof spec, "csv:%s", folder);
    clt_dataset *train = open_as(spec, "train", NULL), *test = open_as(spec, "test", NULL);
    assert_int_equal(clt_dataset_count(train), 49999);
    assert_int_equal(clt_dataset_count(test), 2);
    const int32_t *labels = field(test, "label");
    assert_true(labels[0] == 1 && labels[1] == 0);
    clt_dataset_free(train);
    clt_dataset_free(test);
    unlink(name);
}

/* Numbers whose squares are out of the range of f64. */
static void test_extreme_numbers(void **state)
{
    (void)state;
    clt_dataset *d = open_as(
        file("e.csv", "big,small,y\n1e300,0,1\n-1e308,1e-170,2\n1.5e308,2e-170,3\n0,0,1\n", ""),
        "train", NULL);
    const float *x = field(d, "x");
    const double big[] = {1e-8, -1, 1.5}, mean = (.5 + 1e-8) / 3;
    double spread = 0;
    for (int i = 0; i < 3; i++)
        spread += (big[i] - mean) * (big[i] - mean) / 3;
    for (int i = 0; i < 3; i++) {
        near(x[2 * i], (big[i] - mean) / sqrt(spread));
        near(x[2 * i + 1], (i - 1) / sqrt(2. / 3));
    }
    clt_dataset_free(d);
    /* A test row that no f32 can hold. */
    clt_dataset_options o;
    clt_dataset_options_init(&o);
    o.split = "test";
    assert_int_equal(
        clt_dataset_open(file("e.csv", "a,y\n0,1\n1e-170,2\n2e-170,3\n1,1\n", ""), &o, &d),
        CLT_FORMAT);
    assert_non_null(strstr(clt_error_message(),
                           "line 5, column 1 ('a'): '1' is too far from the mean of the training "
                           "samples"));
}

/* Forms of dates that are refused, and texts that only look like them. */
static void test_dates(void **state)
{
    (void)state;
    static const char *const dates[] = {"2024-05-31",       "31.5.2024",
                                        "5/31/24",          "12:30",
                                        "2024-05-31T12:30", "2024-01",
                                        "01/2024",          "Jan 5 2024",
                                        "5-Jan-2024",       "\"Friday, 5 January 2024 12:30\"",
                                        "\"sept 5, 2024\"", "Dec-24"},
                             *const names[] = {"2024-25", "2024-13",   "2024-1",
                                               "Mar",     "Maria 5",   "5 kg",
                                               "Jan5x",   "Jan 1 2 3", "13/2024"};
    char text[256];
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        snprintf(text, sizeof text, "when,y\n%s,1\n%s,2\n%s,3\n", dates[i], dates[i], dates[i]);
        fails(file("d.csv", text, ""), "column 1 ('when') has dates or times");
        clt_dataset_free(open_as(file("d.csv", text, "text=when"), "train", NULL));
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(text, sizeof text, "when,y\n%s,1\n%s,2\n%s,3\n", names[i], names[i], names[i]);
        clt_dataset_free(open_as(file("d.csv", text, ""), "train", NULL));
    }
}

static void test_messages(void **state)
{
    (void)state;
    static const struct {
        const char *text, *options, *says;
    } cases[] = {
        {"a,b\n1,2\n3\n4,5\n", "", "line 3, column 2 ('b'): is missing: the row has 1 of the 2"},
        {"a,b\n1,2\n\n3,4,5\n", "",
         "line 4, column 3: the row has more than the 2 columns of line 1"},
        {"a,b\n1,2\nNaN,3\n4,5\n", "", "line 3, column 1 ('a'): the value is missing ('NaN')"},
        {"a,b\n1,2\n,3\n4,5\n", "", "train with missing=mean or missing=frequent"},
        {"a,b\n1,2\n3,\n4,5\n", "missing=mean",
         "line 3, column 2 ('b'): the value is missing (''), and missing= does not fill a target: "
         "delete the row"},
        {"a,w,b\n1,2,3\n3,,4\n4,5,6\n", "field=w,missing=mean",
         "line 3, column 2 ('w'): the value is missing (''), and missing= does not fill a field"},
        {"a,w,b\n1,2,3\n3,1e39,4\n4,5,6\n", "field=w",
         "line 3, column 2 ('w'): '1e39' is out of the range of f32"},
        {"a,w,b\n1,2,3\n3,1e-50,4\n4,5,6\n", "field=w",
         "line 3, column 2 ('w'): '1e-50' is out of the range of f32"},
        {"a,b\n0,2\n4.9e-324,3\n4,5\n", "", "column 1 ('a'): its numbers have the deviation"},
        {"a,b\n1,1e200\n2,-1e200\n4,5\n", "",
         "column 2 ('b'): its numbers have the deviation 1e+200, too large to compute with: give "
         "them in another unit"},
        {"a,b\n1,2\ninf,3\n4,5\n", "", "line 3, column 1 ('a'): 'inf' is not finite"},
        {"a,b\n1,2\n2,1e999\n4,5\n", "", "line 3, column 2 ('b'): '1e999' is not finite"},
        {"a,b\n1,\"2\n3\"\n\"x\"y,3\n", "",
         "line 4, column 1 ('a'): a quote is in the wrong place"},
        {"a,b\n1,\"2\n3,4\n5,6\n", "",
         "line 2, column 2 ('b'): the text begins with a quote and does not end with one"},
        {"\"a\";\"b\"\n1;2\n3;4\n", "",
         "line 1, column 1: another text begins behind ';'; did you mean "
         "delimiter=;?"},
        {"\"a\",\"b\"\n1,2\n3,4\n", "delimiter=;", "did you mean delimiter=%2C (commas)?"},
        {"a,b\n1,2\n\"3\n4\",\"5\n6\n7\"8,9\n", "",
         "line 6, column 2 ('b'): a quote is in the wrong place in the text that begins on line 4"},
        {"a,b\n1,2\nx,2\n1,3\n1,3\n1,3\n1,3\n1,3\n1,3\n1,3\n1,3\n1,3\n", "",
         "line 3, column 1 ('a'): 'x' is no number, but 9 of 10 values"},
        {"when,b\n2024-01-02,2\n2024-01-03,2\n2024-01-04,2\n", "", "column 1 ('when') has dates"},
        {"a,b\n1,2\n2,x\n3,4\n", "task=regress", "line 3, column 2 ('b'): 'x' is no number"},
        {"a,a\n1,2\n", "", "line 1, column 2: the name 'a' is that of column 1 too"},
        {"0,x,0\n1,y,0\n2,z,1\n", "",
         "column 3: the name '0' is that of column 1 too: rename one, or say header=off"},
        {",a,b\n0,1,2\n1,2,3\n", "",
         "line 1, column 1: the header has no name for it: write one (pandas: to_csv(index=False)"},
        {"a;b\n1;2\n2;3\n", "", "besides the target 'a;b'; did you mean delimiter=;?"},
        {"a;b\n1,5;2\n2,5;3\n", "", "the 1 columns of line 1; did you mean delimiter=;?"},
        {"a\tb\n1\t2\n2\t3\n", "target=b", "'b' (target=); did you mean delimiter=tab?"},
        {"a;b\n1,5;2\n2,5;3\n3,5;4\n", "delimiter=;",
         "line 2, column 1 ('a'): '1,5' has a comma: write decimals with a point"},
        {"a,b\n", "", "has no rows behind the header"},
        {"", "", "is empty"},
        {"b\n1\n2\n3\n", "", "has no column besides the target 'b'"},
        {"a,b\n1,2\n2,3\n", "target=c", "has no column 'c' (target=)"},
        {"a,b\n1,2\n2,3\n", "trget=b", "no option 'trget'; did you mean target"},
        {"a,b\n1,2\n2,3\n", "target=a,target=b", "csv: option target is given twice"},
        {"a,b\n1,2\n2,3\n", "drop=a,drop=b", "option drop is given twice: give it once, columns"},
        {"a,b\n1,2\n2,3\n", "missing=median", "missing=median: must be refuse, mean or frequent"},
        {"a,b\n1,2\n2,3\n", "target", "must be NAME=VALUE"},
        {"a,b\nx,3\n\xff,2\ny,1\n", "",
         "m.csv: line 3, column 1 ('a'): the text is not UTF-8: convert the file"},
        {"a,\xe9\nx,3\nz,2\ny,1\n", "", "m.csv: line 1, column 2: the name is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        fails(file("m.csv", cases[i].text, cases[i].options), cases[i].says);
    clt_dataset_options o;
    clt_dataset *d = NULL;
    clt_dataset_options_init(&o);
    o.description = "{}";
    assert_int_equal(clt_dataset_open(file("m.csv", "a,b\n1,2\n2,3\n", ""), &o, &d), CLT_FORMAT);
    assert_int_equal(clt_dataset_open("npz:x.npz", &o, &d), CLT_INVALID_ARGUMENT);
    snprintf(spec, sizeof spec, "csv:%s/none.csv", folder);
    fails(spec, "none.csv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_validation),
        cmocka_unit_test(test_labels),   cmocka_unit_test(test_gzip_and_folders),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_extreme_numbers),
        cmocka_unit_test(test_dates),    cmocka_unit_test(test_options_beside_description),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else

int main(void)
{
    return 77; /* a build without libcsv */
}

#endif
