/* `cltrain --print-completion`: a bash script that completes subcommands, options and values. */
#include <stdio.h>
#include <string.h>

#include <cltrain/models.h>
#include <cltrain/train.h>

#include "options/commands.h"
#include "options/manual.h"
#include "text/message.h"

/* Values of options whose argument name does not tell what they are. A path or number follows words
 * that end in ':'. */
static const struct {
    const char *option, *words;
} values[] = {
    {"data", "fashion-mnist idx: cifar10: cifar100: images: tokens: text: npz: hdf5: synthetic"},
    {"windows", "fixed shifted random continued"},
    {"augment", "crop flip crop,flip resized-crop,flip"},
    {"tokenizer", "bytes gpt2:"},
    {"devices", "all gpu cpu"},
    {"freeze", "1d"},
    {"param-group", "1d:decay=0"},
    {"schedule", "constant step: cosine cosine,warmup:"},
    {"shuffle", "on off"},
    {"precision", "f32 bf16 f16"},
    {"checkpoint-every", "epoch"},
    {"tune", "off"},
    {"split", "measured equal"},
    {"trans", "NN NT TN TT"},
};

/* The rest of the script, which does not depend on the tables. */
static const char *const script[] = {
    "# The word at the cursor, whole: bash itself divides it at : and =.",
    "_cltrain()",
    "{",
    "    local line=${COMP_LINE:0:COMP_POINT} words word before prefix= last key",
    "    COMPREPLY=()",
    "    read -ra words <<<\"$line\"",
    "    [[ $line == *[[:space:]] ]] && words+=(\"\")",
    "    while ((${#words[@]} > 1)) && [[ ${words[0]##*/} != cltrain ]]; do",
    "        words=(\"${words[@]:1}\")",
    "    done",
    "    last=$((${#words[@]} - 1))",
    "    ((last > 0)) || return 0",
    "    word=${words[last]} before=${words[last - 1]} key=${words[1]}",
    "    if ((last == 1)); then",
    "        _cltrain_reply \"\" \"$_cltrain_commands\" \"$word\"",
    "        return",
    "    fi",
    "    if [[ -n $(_cltrain_subjects \"$key\") ]]; then",
    "        if ((last == 2)) && [[ $word != -* ]]; then",
    "            _cltrain_reply \"\" \"$(_cltrain_subjects \"$key\")\" \"$word\"",
    "            return",
    "        fi",
    "        key=\"$key ${words[2]}\"",
    "    fi",
    "    if [[ $word == --*=* ]]; then",
    "        before=${word%%=*} prefix=$before= word=${word#*=}",
    "    fi",
    "    if [[ $before == -?* ]] && _cltrain_value \"$before\" \"$prefix\" \"$word\"; then",
    "        return",
    "    fi",
    "    if [[ $word == -* ]]; then",
    "        _cltrain_reply \"\" \"$(_cltrain_options \"$key\")\" \"$word\"",
    "    elif [[ $key == \"data inspect\" ]]; then",
    "        _cltrain_value --data \"\" \"$word\"",
    "    else",
    "        _cltrain_files \"\" \"$word\"",
    "    fi",
    "}",
    "",
    "# Keeps what begins with the word $3 of the list $2, without what stands before the last : =",
    "_cltrain_reply()",
    "{",
    "    local typed=$1$3 candidate",
    "    local divided=${typed%\"${typed##*[:=]}\"}",
    "    while IFS= read -r candidate; do",
    "        COMPREPLY+=(\"${candidate#\"$divided\"}\")",
    "        [[ $candidate != *: ]] || compopt -o nospace 2>/dev/null",
    "    done < <(compgen -P \"$1\" -W \"$2\" -- \"$3\")",
    "}",
    "",
    "# The same of files: $1 stands before the path $2.",
    "_cltrain_files()",
    "{",
    "    local typed=$1$2 candidate",
    "    local divided=${typed%\"${typed##*[:=]}\"}",
    "    compopt -o filenames 2>/dev/null",
    "    while IFS= read -r candidate; do",
    "        candidate=$1$candidate",
    "        COMPREPLY+=(\"${candidate#\"$divided\"}\")",
    "    done < <(compgen -f -- \"$2\")",
    "}",
    "",
    "complete -F _cltrain cltrain",
};

static void put_names(unsigned commands)
{
    option_text o;
    const char *space = "";
    for (int row = 0; settings_next(commands, &row, &o); space = " ")
        printf("%s--%s", space, o.name);
}

static void print_commands(void)
{
    fputs("_cltrain_commands=\"", stdout);
    for (int i = 0; i < command_count; i++)
        printf("%s ", command_rows[i].name);
    fputs("models help --help --version\"\n\n_cltrain_subjects()\n{\n    case $1 in\n", stdout);
    for (int i = 0; i < command_count; i++) {
        subject_text subject;
        if (!command_rows[i].subject)
            continue;
        printf("        %s) echo \"", command_rows[i].name);
        for (int k = 0; command_rows[i].subject(k, &subject); k++)
            printf("%s%s", k ? " " : "", subject.name);
        fputs("\" ;;\n", stdout);
    }
    fputs("        help) echo \"$_cltrain_commands\" ;;\n    esac\n}\n\n", stdout);
}

static void print_options(void)
{
    fputs("_cltrain_options()\n{\n    case $1 in\n", stdout);
    for (int i = 0; i < command_count; i++) {
        const command_row *row = &command_rows[i];
        subject_text subject;
        for (int k = 0; row->subject && row->subject(k, &subject); k++) {
            printf("        \"%s %s\") echo \"", row->name, subject.name);
            put_names(subject.bit);
            fputs("\" ;;\n", stdout);
        }
        printf("        %s*) echo \"", row->name);
        put_names(row->bit);
        fputs("\" ;;\n", stdout);
    }
    fputs("    esac\n}\n\n", stdout);
}

static const char *words_of(const char *option)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (!strcmp(values[i].option, option))
            return values[i].words;
    return NULL;
}

/* Returns whether the argument is the path of a file or folder. */
static int is_path(const option_text *o)
{
    return !strcmp(o->argument, "FILE") || !strcmp(o->argument, "DIR");
}

static void print_model_words(void)
{
    for (int i = 0; i < clt_model_count(); i++)
        printf("%s%s", i ? " " : "", clt_model_name(i));
}

static void print_optimizer_words(void)
{
    for (int i = CLT_SGD; i <= CLT_ADAMW; i++)
        printf("%s%s", i == CLT_SGD ? "" : " ", clt_optimizer_name((clt_optimizer)i));
}

/* Writes the function that completes values. Unknown values complete to nothing: file names would
 * be wrong for a learning rate. */
static void print_values(void)
{
    option_text o;
    fputs("# Completes the value $3 of the option $1; fails if the option has none. $2 stands "
          "before it.\n"
          "_cltrain_value()\n{\n    local path=${3#*:} kind=${3%%:*}\n    case $1 in\n",
          stdout);
    for (int row = 0; settings_next(~0u, &row, &o);) {
        const char *words = words_of(o.name);
        if (!o.argument)
            continue;
        fputs("        ", stdout);
        if (o.letter)
            printf("-%c | ", o.letter);
        printf("--%s) ", o.name);
        if (!strcmp(o.name, "data") || !strcmp(o.name, "tokenizer"))
            printf("if [[ $3 == *:* ]]; then _cltrain_files \"$2$kind:\" \"$path\"; else "
                   "_cltrain_reply \"$2\" \"%s\" \"$3\"; fi",
                   words);
        else if (!strcmp(o.name, "model")) {
            fputs("_cltrain_reply \"$2\" \"", stdout);
            print_model_words();
            fputs("\" \"$3\"; ((${#COMPREPLY[@]})) || _cltrain_files \"$2\" \"$3\"", stdout);
        } else if (!strcmp(o.name, "optimizer")) {
            fputs("_cltrain_reply \"$2\" \"", stdout);
            print_optimizer_words();
            fputs("\" \"$3\"", stdout);
        } else if (words)
            printf("_cltrain_reply \"$2\" \"%s\" \"$3\"", words);
        else if (is_path(&o))
            fputs("_cltrain_files \"$2\" \"$3\"", stdout);
        else
            fputs(":", stdout);
        fputs(" ;;\n", stdout);
    }
    fputs("        *) return 1 ;;\n    esac\n    return 0\n}\n\n", stdout);
}

int completion_print(void)
{
    fputs("# Completion of cltrain for bash. Written by cltrain --print-completion.\n\n", stdout);
    print_commands();
    print_options();
    print_values();
    for (size_t i = 0; i < sizeof script / sizeof *script; i++)
        printf("%s\n", script[i]);
    return EXIT_DONE;
}
